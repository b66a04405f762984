"""Ctrl-C at any instant: a KeyboardInterrupt at each line of hookline in turn, and real signals.

By default some lines of each phase (entering, inside, leaving) of each verb are interrupted; with
HOOKLINE_INTERRUPTS=all every single step of every verb, which takes an hour.
"""

import gc
import os
import random
import subprocess
import sys
import textwrap
from contextlib import nullcontext
from pathlib import Path
from types import FunctionType

import pytest
import torch
from torch import nn

import hookline
from hookline.backends.torch.grads.threads import threads
from hookline.backends.undoing import Undoing, again, itself
from hookline.runfiles import runfile
from hookline.testing import untouched
from hookline.testing.interrupting import Action, cut
from tests.support.interrupts import ends_the_process, state
from tests.support.models import nested
from tests.support.paths import ROOT

X = torch.ones(1, 2)
ALL = os.environ.get("HOOKLINE_INTERRUPTS") == "all"


def nothing(*told):
    return None


def run(model):
    return model(X)


def train(model):
    model(X).sum().backward()


def steps(model):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
    for _ in range(2):
        optimizer.zero_grad()
        model(X).sum().backward()
        optimizer.step()


def registers(model):
    """Somebody registers a hook while a block is open."""
    with nullcontext(model[0].register_forward_hook(nothing)) as handle:
        handle.remove()
    model(X)


def saves(model):
    model.load_state_dict(model.state_dict())


class Sink:
    def write(self, rows):
        pass

    def close(self):
        pass


BLOCKS = {
    "record": (lambda m: hookline.record(m), run),
    "record all": (lambda m: hookline.record(m, inputs=True, grads=True), train),
    "record until": (lambda m: hookline.record(m, "0", stop=True), run),
    "record operators": (lambda m: hookline.record(m, ops=True, grads=True), train),
    "record reduced": (lambda m: hookline.record(m, reduce=torch.mean, dtype=torch.float64, limit="1MB"), run),
    "record beside others": (lambda m: hookline.record(m, inputs=True), registers),
    "edit": (lambda m: hookline.edit(m, {"0": lambda o: o * 2, "1:input": lambda a: a, "2": X}), run),
    "edit of gradients": (
        lambda m: hookline.edit(m, {"0:grad_output": lambda g: g, "1:grad_input": lambda g: g}),
        train,
    ),
    "edit of a weight": (lambda m: hookline.edit(m, {"0.weight": lambda w: w * 2}), run),
    "skip": (lambda m: hookline.edit(m, {"1": hookline.skip, "2": hookline.skip(torch.relu)}), run),
    "watch": (lambda m: hookline.watch(m, inputs=True, to=[Sink()]), steps),
    "watch of some": (lambda m: hookline.watch(m, every=2, stats=["p99"], channels=1), steps),
    "watch operators": (lambda m: hookline.watch(m, ops=True), steps),
    "op hook": (lambda m: hookline.register_op_hook(m, nothing), train),
    "op hook on a part": (
        lambda m: hookline.register_op_hook(m, nothing, "0", monitor_all=True, events=True),
        train,
    ),
    "pre-hook": (lambda m: hookline.register_forward_pre_hook(m, nothing, "**", with_kwargs=True), run),
    "forward hook": (lambda m: hookline.register_forward_hook(m, nothing, "**", always_call=True), run),
    "backward hook": (lambda m: hookline.register_backward_hook(m, nothing, "**"), train),
    "backward pre-hook": (lambda m: hookline.register_backward_pre_hook(m, nothing, "**"), train),
    "accumulation hook": (lambda m: hookline.register_post_accumulate_grad_hook(m, nothing), train),
    "state-dict hook": (lambda m: hookline.register_state_dict_post_hook(m, nothing, "**"), saves),
    "load hook": (lambda m: hookline.register_load_state_dict_pre_hook(m, nothing, "**"), saves),
    "stored outputs": (lambda m: hookline.hook_outputs(list(m)), train),
    "HookCallback": (lambda m: hookline.HookCallback(hook=lambda m, i, o: 0).attach(m), steps),
    "ActivationStats": (lambda m: hookline.ActivationStats(every=2, with_hist=True).attach(m), steps),
    "summary": (nullcontext, lambda m: hookline.summary(m, (1, 2))),
    "real summary": (nullcontext, lambda m: hookline.summary(m, X, real=True)),
    "trace": (nullcontext, lambda m: hookline.trace(m, X)),
    "layer_info": (nullcontext, lambda m: hookline.layer_info(m, X)),
}
SAMPLE = {"enter": 25, "use": 25, "leave": 25}
"""So many steps of each phase of each verb are interrupted by default."""


def chosen(name, lines):
    """The numbers of the steps to interrupt: all, or of each phase some, of which no two are of one line."""
    if ALL:
        return list(range(len(lines)))
    order = list(range(len(lines)))
    random.Random(name).shuffle(order)
    by_place = {lines[number]: number for number in order}
    found = []
    for phase, count in SAMPLE.items():
        found += [number for place, number in by_place.items() if place[0] == phase][:count]
    return found


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # Python drops it in a finalizer
@pytest.mark.filterwarnings("ignore:no optimizer of this model has stepped")
@pytest.mark.parametrize("name", BLOCKS)
def test_an_interrupt_at_any_line_leaves_nothing_behind(name):
    action = Action(*BLOCKS[name], ends_the_process)
    action(nested())  # what is loaded or compiled at first use is not to be interrupted
    before = state()
    lines = action.lines(nested())
    assert len(lines) > 50
    for number in chosen(name, lines):
        model = nested()
        with untouched(model, rng=False):
            action.cut(model, number)
        assert hookline.installed(model) == [] and type(model) is nn.Sequential, lines[number]
        del model
        assert settled(before) == before, lines[number]
        again_works(lines[number])


def settled(before):
    """The state, after the collector came by if it has to: an ExitStack in which a step raised has a cycle, the
    error's, and that has the graph, for which torch's engine is observed."""
    if state() != before:
        gc.collect()
    return state()


def again_works(place):
    model = nested()
    with hookline.record(model, inputs=True) as rec, hookline.edit(model, {"1": lambda out: out + 1}):
        out = model(X)
    assert torch.equal(rec[""].output, out) and rec.names == ["0", "1", "2.0", "2", ""], place


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # Python drops it in a finalizer
@pytest.mark.parametrize("several", [False, True], ids=["one thread", "several threads"])
def test_an_interrupt_while_a_run_is_written_leaves_nothing_on_the_model(tmp_path, monkeypatch, several):
    monkeypatch.setattr(threads, "several", several)  # then each backward looks its graph through
    for make in (hookline.record, hookline.watch):

        def block(model, make=make):
            return make(model, to=tmp_path / os.urandom(4).hex())

        action = Action(block, steps, ends_the_process)
        action(nested())
        before = state()
        lines = action.lines(nested())
        for number in chosen(make.__name__, lines):
            model = nested()
            with untouched(model, rng=False):
                action.cut(model, number)
            assert hookline.installed(model) == []
            # The thread that writes the run may be at it still.
            assert {**settled(before), "threads": 0} == {**before, "threads": 0}, (make, lines[number])


WRITING = """
import os, sys, warnings
import hookline
sys.path.insert(0, {root!r})
from tests.support.interrupts import ends_the_process
from tests.contract.test_interrupts import steps
from tests.support.models import nested
from hookline.testing.interrupting import Action

warnings.simplefilter("ignore")
sys.unraisablehook = lambda told: None  # Python drops what is raised in a finalizer
for make in (hookline.record, hookline.watch):
    new = lambda: os.path.join({folder!r}, os.urandom(4).hex())
    action = Action(lambda model: make(model, to=new()), steps, ends_the_process)
    action(nested())
    lines = action.lines(nested())
    places = {{place: number for number, place in enumerate(lines) if place[1].startswith("/runfiles")}}
    for place, number in places.items():
        print(place, flush=True)
        action.cut(nested(), number)
    print(len(places), flush=True)
"""


def test_an_interrupt_where_a_run_is_written_leaves_no_lock_locked(tmp_path):
    """One between the last line of a `with` and its end: whoever came next would wait for ever."""
    code = WRITING.format(root=str(ROOT), folder=str(tmp_path))
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, (done.stdout[-200:], done.stderr)
    assert int(done.stdout.split()[-1]) > 100  # the lines of a watch, which come last


class Cut:
    """Something to call that Ctrl-C ends the first time."""

    def __init__(self):
        self.given = []

    def leave(self, *args, **kwargs):
        self.given.append((args, kwargs))
        if len(self.given) == 1:
            raise KeyboardInterrupt
        return "left"

    leave_again = again(leave)


@pytest.mark.skipif(isinstance(again, FunctionType), reason="hookline was installed without a compiler")
def test_what_an_interrupt_ended_is_done_again_and_the_interrupt_goes_on():
    cut = Cut()
    with pytest.raises(KeyboardInterrupt):
        cut.leave_again(1, by=2)
    assert cut.given == [((1,), {"by": 2})] * 2
    assert cut.leave_again() == "left" and Cut.leave_again(cut) == "left"
    with pytest.raises(TypeError, match="positional argument"):
        Undoing.__exit__()
    undoing = Undoing()
    assert undoing.__enter__() is undoing and itself(5) == 5


def test_without_a_compiler_blocks_work_too():
    code = (
        "import importlib.util as u; find = u.find_spec;"
        "u.find_spec = lambda name, *a: None if name.endswith('_again') else find(name, *a);"
        "import hookline, torch; m = torch.nn.Linear(1, 1)\n"
        "with hookline.record(m) as rec: m(torch.ones(1, 1))\n"
        "from hookline.backends.undoing import again; print(rec.names, again(len) is len, hookline.installed(m))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert done.stdout.split("\n")[0] == "[''] True []", done.stderr


SIGNALS = """
import gc, os, random, signal, sys, threading, time, traceback
import torch, hookline
from hookline.testing import untouched
sys.path.insert(0, {root!r})
from tests.support.interrupts import state
from tests.contract.test_interrupts import BLOCKS
from tests.support.models import nested

signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell may have it ignored in the background
random.seed({seed})
torch.set_num_threads(1)
names = {names!r}
for name in names:
    for block, use in [BLOCKS[name]] * 2:
        with block(model := nested()): use(model)
before = state()
done = threading.Event()
interrupted = 0
for number in range({count}):
    block, use = BLOCKS[names[number % len(names)]]
    model = nested()
    start = time.perf_counter()
    with block(nested()): pass
    attaching = time.perf_counter() - start

    def later():
        time.sleep(random.random() * attaching * 3)
        os.kill(os.getpid(), signal.SIGINT)
        done.set()

    with untouched(model, rng=False):
        thread = threading.Thread(target=later)
        try:
            thread.start()
            with block(model): use(model)
            with block(model): use(model)
            done.wait(5)
        except KeyboardInterrupt:
            interrupted += 1
            print(names[number % len(names)], traceback.format_exc(), file=sys.stderr)
        while True:
            try:
                thread.join()
                done.clear()
                break
            except KeyboardInterrupt:
                pass
    name = names[number % len(names)]
    assert hookline.installed(model) == [], name
    del model
    if state() != before: gc.collect()
    assert state() == before, (name, state(), before)
print("interrupted", interrupted)
"""


@pytest.mark.parametrize("seed", range(20 if ALL else 2))
def test_real_signals_at_random_moments_leave_nothing_behind(seed):
    names = [name for name in BLOCKS if "stop" not in name and "summary" not in name and name != "trace"]
    code = textwrap.dedent(SIGNALS.format(seed=seed, names=names, count=112, root=str(ROOT)))
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code], capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert int(done.stdout.split()[-1]) > 20


def test_no_exception_seems_to_be_handled_after_a_cut():
    """Each line of a function whose `except` returns; it is one of hookline's, since only these are cut."""
    for number in range(1, 8):
        cut(number, lambda: runfile._stamp(Path("/nothing here")))
        assert sys.exc_info() == (None, None, None)
