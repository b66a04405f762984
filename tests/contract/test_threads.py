"""Storms: threads that attach and detach without pause, while others call the model and must notice nothing."""

import sys
import threading
import time

import pytest
import torch
from torch import nn

import hookline
from hookline.testing import untouched

SECONDS = 1.5


class Block(nn.Module):
    """Tensors by position and by name, several outputs."""

    def __init__(self):
        super().__init__()
        self.lin = nn.Linear(3, 3)

    def forward(self, x, *, scale):
        return self.lin(x) * scale, scale


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = Block(), Block()
        self.act = nn.Sequential(nn.Linear(3, 3), nn.ReLU())

    def forward(self, x):
        scale = torch.full((), 2.0)
        h, scale = self.first(x, scale=scale)
        h, _ = self.second(h, scale=scale)
        return self.act(h)


@pytest.fixture
def net():
    torch.manual_seed(0)
    return Net()


@pytest.fixture(autouse=True)
def restless():
    """Threads take turns after every few operations of Python."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


X = torch.linspace(-1, 1, 6).reshape(2, 3)


def storm(*works, seconds=SECONDS):
    """Runs each function over and over in a thread of its own; the first exception of each."""
    errors, rounds = [], [0] * len(works)
    until = time.monotonic() + seconds

    def run(number, work):
        try:
            while time.monotonic() < until and not errors:
                work()
                rounds[number] += 1
        except BaseException as error:
            errors.append((getattr(work, "__name__", str(work)), repr(error), error))

    threads = [threading.Thread(target=run, args=item) for item in enumerate(works)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0][2]
    assert all(rounds), rounds


def clean(net):
    assert hookline.installed(net) == []
    for module in net.modules():
        assert "forward" not in vars(module) and type(module).__module__ != "hookline"
        for name, value in vars(module).items():
            assert not ("_hooks" in name and value), (name, value)


QUIET = {  # verbs that change no value, so that whoever calls sees what he sees without them
    "record": lambda net: hookline.record(net),
    "record inputs": lambda net: hookline.record(net, inputs=True),
    "record all": lambda net: hookline.record(net, inputs=True, grads=True),
    "record operators": lambda net: hookline.record(net, ops=True),
    "record and stop": lambda net: hookline.record(net, "first", stop=True),
    "watch": lambda net: hookline.watch(net),
    "watch inputs": lambda net: hookline.watch(net, inputs=True, every=2),
    "watch operators": lambda net: hookline.watch(net, ops=True, every=2),
    "edit": lambda net: hookline.edit(net, {"**": lambda v: v, "**:input": lambda v: v, "*:kwargs": lambda v: v}),
    "gradient edit": lambda net: hookline.edit(net, {"**:grad_input": lambda g: g, "**:grad_output": lambda g: g}),
    "skip of another's": lambda net: hookline.edit(net, {"act.1": hookline.skip(torch.relu)}),
    "pre-hook": lambda net: hookline.register_forward_pre_hook(
        net, lambda m, a, k: (a, k), "**", with_kwargs=True
    ),
    "forward hook": lambda net: hookline.register_forward_hook(
        net, lambda m, a, k, o: None, "**", with_kwargs=True
    ),
    "backward hook": lambda net: hookline.register_backward_hook(net, lambda m, gi, go: None, "**"),
    "backward pre-hook": lambda net: hookline.register_backward_pre_hook(net, lambda m, go: None, "**"),
    "op hook": lambda net: hookline.register_op_hook(net, lambda *told: None, "first"),
}


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("verb", QUIET)
def test_whoever_calls_notices_nothing_of_who_attaches(net, verb):
    right = net(X).detach()

    def attaches():
        with QUIET[verb](net):
            if verb != "record and stop":
                assert torch.equal(net(X).detach(), right)
            else:
                net(X)

    def calls():
        assert torch.equal(net(X).detach(), right)

    def calls_in_a_block_of_its_own():
        with hookline.record(net, inputs=True) as rec:
            assert torch.equal(net(X).detach(), right)
        # It sees calls of threads that have no block as well.
        assert rec["first"].calls and all(torch.equal(call.output, right) for call in rec["act.1"].calls)

    others = [calls_in_a_block_of_its_own] if verb == "record and stop" else [calls, calls_in_a_block_of_its_own]
    with untouched(net, rng=False):
        storm(attaches, attaches, *others)
    clean(net)


LOUD = {
    "edit": lambda net: hookline.edit(net, {"first": lambda out: (out[0] * 0, out[1])}),
    "edit of the input": lambda net: hookline.edit(net, {"act:input": lambda args: (args[0] * 0,)}),
    "edit of kwargs": lambda net: hookline.edit(net, {"second:kwargs": lambda k: {"scale": k["scale"] * 0}}),
    "skip": lambda net: hookline.edit(net, {"act": hookline.skip}),
    "skip with a value": lambda net: hookline.edit(net, {"act.1": hookline.skip(torch.zeros(2, 3))}),
}


@pytest.mark.parametrize("verb", LOUD)
def test_edits_are_seen_by_their_own_block_alone(net, verb):
    right = net(X).detach()
    with LOUD[verb](net):
        edited = net(X).detach()
    assert not torch.equal(edited, right)

    def edits():
        with LOUD[verb](net):
            assert torch.equal(net(X).detach(), edited)

    def calls_in_a_block_of_its_own():
        with hookline.record(net) as rec:
            assert torch.equal(net(X).detach(), right)
        assert torch.equal(rec["act"].output, right)

    with untouched(net, rng=False):
        storm(edits, edits, calls_in_a_block_of_its_own, calls_in_a_block_of_its_own)
    clean(net)


def test_all_verbs_at_once(net):
    right = net(X).detach()
    verbs = [verb for verb in QUIET if verb != "record and stop"]

    def one_after_another():
        for verb in verbs:
            with QUIET[verb](net):
                assert torch.equal(net(X).detach(), right)

    def trains():
        with QUIET["record all"](net):
            out = net(X)
            out.sum().backward()
            assert torch.equal(out.detach(), right)

    def calls():
        assert torch.equal(net(X).detach(), right)

    storm(one_after_another, one_after_another, trains, calls, seconds=2 * SECONDS)
    clean(net)


def test_a_watch_of_a_model_that_other_threads_call(net):
    """The threads have no block, so their calls are steps of the watch: each switches the taps."""
    optimizer = torch.optim.SGD(net.parameters(), lr=0.0)

    def steps():
        net(X).sum().backward()
        optimizer.step()

    def calls():
        with torch.no_grad():
            net(X)

    for options in ({"every": 2}, {"every": 3, "inputs": True}, {"every": 2, "ops": True, "channels": 1}):
        with hookline.watch(net, **options) as watched:
            storm(steps, calls, calls, watched.rows)
        clean(net)
        assert watched.rows()


def test_watches_that_come_and_go(net):
    def watches():
        with hookline.watch(net, inputs=True, every=2) as watched, torch.no_grad():
            net(X)
        watched.rows()

    def calls():
        with torch.no_grad():
            net(X)

    storm(watches, watches, calls, calls)
    clean(net)


def test_hooks_of_torch_registered_meanwhile_stay_whose_they_are(net):
    """Foreign hooks come and go in the same dictionaries; each handle removes its own."""
    right = net(X).detach()

    def foreign():
        handles = [module.register_forward_hook(lambda m, a, o: None) for module in net.modules()]
        handles += [
            module.register_forward_pre_hook(lambda *told: None, with_kwargs=True) for module in net.modules()
        ]
        net(X)
        for handle in handles:
            handle.remove()

    def records():
        with hookline.record(net, inputs=True, grads=True) as rec:
            net(X)
        assert torch.equal(rec[""].output, right)

    storm(foreign, foreign, records, records)
    clean(net)


def test_forwards_that_are_replaced_go_in_any_order(net):
    """Skips and op hooks of several threads on one forward, each left when it comes."""
    right = net(X).detach()
    waiting, lock = [], threading.Lock()

    def enters_one_and_leaves_another():
        block = hookline.edit(net, {"act.1": hookline.skip(torch.relu)})
        block.__enter__()
        hooked = hookline.register_op_hook(net, lambda *told: None, "act")
        with lock:
            waiting.append((block, hooked))
            block, hooked = waiting.pop(0) if len(waiting) > 3 else (None, None)
        if hooked is not None:
            hooked.remove()
            block.__exit__(None, None, None)

    def calls():
        assert torch.equal(net(X).detach(), right)

    storm(enters_one_and_leaves_another, enters_one_and_leaves_another, calls, calls)
    for block, hooked in waiting:
        hooked.remove()
        block.__exit__(None, None, None)
    clean(net)
