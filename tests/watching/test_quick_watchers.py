"""Quick watchers: outputs are reduced in C where a call is plain, and nobody can tell which it was."""

import gc
import random
import sys
import threading
import weakref
from copy import deepcopy

import pytest
import torch
from torch import nn

import hookline
from hookline.backends import quick
from hookline.backends.torch.taps import taps_on
from hookline.lines.registry import forget, statistic
from hookline.rows import SCALAR
from hookline.testing.zoo import ZOO
from hookline.watching.block import Watch
from hookline.watching.steps import Gathered
from hookline.watching.taps import QuickWatcher

IN_C = quick.Measurer.__module__ == "hookline.backends._tap"
needs_c = pytest.mark.skipif(not IN_C, reason="hookline was installed without a compiler")
X = torch.linspace(-2, 2, 12).reshape(4, 3)


class Again(nn.Module):
    """Calls its part as often as the batch says, and hands on what an in-place operation has changed."""

    def __init__(self):
        super().__init__()
        self.part, self.act = nn.Linear(3, 3), nn.ReLU(inplace=True)
        self.inner = nn.Sequential(nn.Linear(3, 3), nn.Tanh())

    def forward(self, x):
        for _ in range(1 + len(x) % 3):
            x = self.act(self.part(x))
        return self.inner(x)


class Odd(nn.Module):
    """Returns one of the structures and types that are no plain tensor."""

    def __init__(self, kind):
        super().__init__()
        self.kind = kind
        self.fc = nn.Linear(3, 3)

    def forward(self, x):
        y = self.fc(x)
        return {
            "tuple": lambda: (y, y * 2),
            "dict": lambda: {"a": y, "b": [y + 1]},
            "int": lambda: y.argmax(1),
            "bool": lambda: y > 0,
            "complex": lambda: torch.complex(y, y),
            "none": lambda: None,
            "empty": lambda: y[:0],
            "scalar": lambda: y.sum(),
            "strided": lambda: y.T[::2],
            "nine dimensions": lambda: y.reshape(2, 2, 3, *[1] * 6).transpose(0, 2),
            "double": y.double,
            "half": y.half,
            "parameter": lambda: self.fc.weight,
            "sparse": y.to_sparse,
            "negated": lambda: torch.complex(y, y).conj().imag,
            "nan": lambda: y / y.new_zeros(()),
            "meta": lambda: y.to("meta"),
        }[self.kind]()


KINDS = [
    *[
        "tuple",
        "dict",
        "int",
        "bool",
        "complex",
        "none",
        "empty",
        "scalar",
        "strided",
        "double",
        "half",
        "parameter",
        "sparse",
        "negated",
        "nan",
        "meta",
    ],
    "nine dimensions",
]


def rows_of(model, batches, modes=None, **how):
    with torch.no_grad(), hookline.watch(model, grads=False, params=False, **how) as w:
        for number, batch in enumerate(batches):
            model.train((modes or [True])[number % len(modes or [True])])
            model(batch)
        return w.rows(), [(one.site, one.fired, one.why) for one in w.audit()]


def told(found):
    rows, audit = found
    return [{k: v.tolist() if hasattr(v, "tolist") else v for k, v in row.items()} for row in rows], audit


@pytest.fixture
def both_ways(monkeypatch):
    """A function that gives what `rows_of` finds in C, and in Python."""

    def ask(model, *args, **how):
        quickly = rows_of(model, *args, **how)
        with monkeypatch.context() as patch:
            patch.setattr(Watch, "_plain_calls", lambda watch: None)
            return told(quickly), told(rows_of(model, *args, **how))

    return ask


@pytest.fixture
def slow_calls(monkeypatch):
    """The sites of the calls that Python did."""
    sites = []
    whole = QuickWatcher.__mro__[1].call_anyhow

    def call_anyhow(tap, *args):
        sites.append(tap.target.name)
        return whole(tap, *args)

    monkeypatch.setattr(QuickWatcher, "call_anyhow", call_anyhow)
    return sites


def same(one, other):
    assert repr(one) == repr(other)  # so that NaN is NaN


@pytest.mark.parametrize("histogram", [False, True])
def test_rows_and_audit_are_those_of_python(both_ways, histogram):
    batches = [torch.randn(n, 3) for n in (1, 2, 3, 2, 5, 1, 4, 4)]
    one, other = both_ways(Again(), batches, [True, True, False], histogram=histogram)
    same(one, other)
    assert len({(row["site"], row["call"]) for row in one[0] if row["kind"] == "output"}) > 5


@pytest.mark.filterwarnings("ignore")  # what can't be reduced is told, in both ways
@pytest.mark.parametrize("kind", KINDS)
def test_odd_outputs_are_told_as_python_tells_them(both_ways, kind):
    one, other = both_ways(nn.Sequential(Odd(kind), nn.Identity()), [X, X + 1, X - 1])
    same(one, other)


@pytest.mark.parametrize("seed", range(12))
def test_random_models_have_the_same_rows_both_ways(both_ways, seed):
    chance = random.Random(seed)
    shared = [nn.Linear(3, 3), nn.ReLU(), nn.ReLU(inplace=True), nn.Dropout(0.0), nn.Identity(), nn.LayerNorm(3)]

    def build(depth):
        if depth == 0 or chance.random() < 0.3:
            return chance.choice(shared) if chance.random() < 0.5 else deepcopy(chance.choice(shared))
        return nn.Sequential(*(build(depth - 1) for _ in range(chance.randint(1, 4))))

    model = nn.Sequential(build(3), nn.Linear(3, 3), build(2))
    same(*both_ways(model, [torch.randn(chance.randint(1, 4), 3) for _ in range(5)], [True, False]))


@pytest.mark.filterwarnings("ignore")  # what specimens are remarkable for is told in both ways
@pytest.mark.parametrize("specimen", ZOO, ids=str)
def test_the_zoo_has_the_same_rows_both_ways(monkeypatch, specimen):
    found = []
    for plain_calls in (Watch._plain_calls, lambda watch: None):
        monkeypatch.setattr(Watch, "_plain_calls", plain_calls)
        model, args, kwargs = specimen.seeded()
        try:
            with torch.no_grad(), hookline.watch(model, grads=False, params=False) as w:
                for _ in range(3):
                    model(*args, **kwargs)
        except Exception as error:  # some refuse to run without gradients, or twice
            found.append((type(error), str(error)))
        else:
            found.append(told((w.rows(), [(one.site, one.fired, one.why) for one in w.audit()])))
    same(*found)


@needs_c
def test_from_the_second_step_on_plain_calls_run_no_python(slow_calls):
    net = nn.Sequential(nn.Linear(3, 3), nn.ReLU(), nn.Linear(3, 2))
    frames = []
    with torch.no_grad(), hookline.watch(net, grads=False, params=False):
        net(X), net(X)
        slow_calls.clear()
        sys.setprofile(lambda frame, event, arg: frames.append(frame.f_code) if event == "call" else None)
        net(X)
        sys.setprofile(None)
    # The first tensor of a step finds out how its kind is read: that is Python, but no call of a tap.
    assert slow_calls == []
    assert not [code for code in frames if "watching/taps.py" in code.co_filename and code.co_name == "__call__"]


@needs_c
def test_a_longer_forward_or_another_mode_takes_the_long_way_once(slow_calls):
    net = Again()
    with torch.no_grad(), hookline.watch(net, grads=False, params=False):
        net(X[:3])
        slow_calls.clear()
        net(X[:1])  # the part is called twice
        assert slow_calls == ["part", "act"]
        net(X[:1])
        assert slow_calls == ["part", "act"]
        net.eval()(X[:3])
        assert slow_calls[2:] == ["part", "act", "inner.0", "inner.1", "inner", ""]


@needs_c
@pytest.mark.parametrize(
    "how", [{"grads": True}, {"inputs": True}, {"channels": 1}, {"fingerprint": True}, {"budget": 0.5}]
)
def test_who_wants_more_than_statistics_of_outputs_gets_it_from_python(how):
    with hookline.watch(nn.Linear(3, 2), **{"grads": False, "params": False, **how}) as w:
        assert w.measuring is None


@needs_c
def test_a_users_statistic_of_stats_leaves_calls_plain_and_one_of_tensors_does_not():
    @statistic("largest", merge="max")
    def largest(tensor, xp):
        return tensor.max()

    try:
        for name, is_plain in (("overflow_fp16", True), ("largest", False)):
            with torch.no_grad(), hookline.watch(nn.Tanh(), grads=False, params=False, stats=[name]) as w:
                for _ in range(2):
                    w._model(X)
                assert (w.measuring is not None) is is_plain
                assert [row[name] for row in w.rows(kind="output")] == [
                    0.0 if is_plain else X.tanh().max().item()
                ] * 2
    finally:
        forget("largest")


def test_threads_lose_no_call():
    net = nn.Sequential(nn.Linear(3, 3), nn.Tanh())
    large = torch.randn(20000, 3)  # the kernel lets other threads run meanwhile

    def work():
        with torch.no_grad():
            for _ in range(40):
                net(large)

    with hookline.watch(net, grads=False, params=False, histogram=False) as w:
        threads = [threading.Thread(target=work) for _ in range(4)]
        [one.start() for one in threads]
        [one.join() for one in threads]
    assert {one.fired for one in w.audit()} == {160}
    rows = [row for row in w.rows(site="0") if row["kind"] == "output"]
    assert sum(row["count"] for row in rows) == 160 * large.numel()


@needs_c
@pytest.mark.parametrize("took_it", [True, False])
def test_a_step_that_ends_while_a_tensor_is_entered_has_it_or_the_next_has(took_it):
    net = nn.Sequential(nn.Linear(3, 3), nn.Tanh())
    with torch.no_grad(), hookline.watch(net, grads=False, params=False) as w:
        net(X), net(X)
        gathered, ended = w.gathered, []

        w.new_forward()
        w.clock.begin_forward()
        net[0](X)
        step = gathered.step
        into_line = step.sheet.into_line

        def ending(tensor):
            """What is called before an entry is appended: another thread ends the step meanwhile."""
            ended.append((step, gathered._handed_over().lines))
            if took_it:
                step.taken = len(step.entries) + 1
            return into_line(tensor)

        step.sheet.into_line = ending
        net[1](X)
        ((step, lines),) = ended
        assert lines == [0] and [key.site for key, _, _ in step.entries] == ["0", "1"]
        assert [key.site for key, _, _ in gathered.step.entries] == ([] if took_it else ["1"])


@pytest.mark.filterwarnings("ignore:watching")
def test_a_site_that_failed_stays_silent_and_the_others_go_on(monkeypatch):
    net = nn.Sequential(nn.Linear(3, 3), nn.Tanh())
    whole = Gathered.add

    def failing(self, key, tensor):
        if key.site == "0":
            raise ValueError("no")
        whole(self, key, tensor)

    monkeypatch.setattr(Gathered, "add", failing)
    with torch.no_grad(), hookline.watch(net, grads=False, params=False) as w:
        for _ in range(4):
            net(X)
        rows = [row for row in w.rows() if row["kind"] != SCALAR]
    assert {row["site"] for row in rows} == {"1", ""}
    assert "ValueError: no" in next(one.why for one in w.audit() if one.site == "0")


def test_another_block_hears_only_its_own_calls():
    net = nn.Sequential(nn.Linear(3, 3), nn.Tanh())
    with torch.no_grad(), hookline.watch(net, grads=False, params=False) as outer:
        net(X), net(X)
        with hookline.watch(net, grads=False, params=False) as inner:
            net(X)
    assert {one.fired for one in outer.audit()} == {3} and {one.fired for one in inner.audit()} == {1}


def test_nothing_is_left_of_a_watch_but_what_it_found():
    net = nn.Sequential(nn.Linear(3, 3), nn.Tanh())
    gc.collect()
    gc.disable()
    try:
        with torch.no_grad(), hookline.watch(net, grads=False, params=False) as w:
            net(X), net(X)
        assert w.measuring is None and not list(taps_on(net[0]))
        gone = weakref.ref(w)
        del w
        assert gone() is None
    finally:
        gc.enable()


def test_a_copy_of_a_watched_model_is_not_watched():
    net = nn.Sequential(nn.Linear(3, 3), nn.Tanh())
    with torch.no_grad(), hookline.watch(net, grads=False, params=False) as w:
        net(X), net(X)
        copy = deepcopy(net)
        copy(X), copy(X)
    assert {one.fired for one in w.audit()} == {2}


@pytest.mark.parametrize(
    "write", [lambda y: y.zero_(), lambda y: y.data.zero_(), lambda y: y.detach().numpy().fill(0)]
)
def test_a_written_tensor_that_comes_again_is_reduced_again(write):
    """A container returns the very tensor of its last part, but writes to it first, which torch may not count."""

    class Writes(nn.Module):
        def __init__(self):
            super().__init__()
            self.fc = nn.Linear(3, 3)

        def forward(self, x):
            y = self.fc(x)
            write(y)
            return y

    net = Writes()
    with torch.no_grad(), hookline.watch(net, grads=False, params=False) as w:
        for _ in range(3):
            net(X)
    assert [row["absmax"] for row in w.rows(site="") if row["kind"] == "output"] == [0, 0, 0]
    assert all(row["absmax"] > 0 for row in w.rows(site="fc"))
