"""Which calls are simple, told by hooks on nodes, and which a backward has to look up; gradients are the same."""

from __future__ import annotations

import gc
import subprocess
import sys

import pytest
import torch
from torch import nn

import hookline
from hookline.backends.torch.grads.marks import VIEW, looked_up
from hookline.backends.torch.grads.simple import Heard

needs_c = pytest.mark.skipif(Heard.__name__ != "Simple", reason="hookline was installed without a compiler")


class Of(nn.Module):
    """A module of one function; with a weight, that of the function."""

    def __init__(self, fn, weight=None):
        super().__init__()
        self.fn = fn
        if weight is not None:
            self.weight = nn.Parameter(weight)

    def forward(self, *args, **kwargs):
        return self.fn(self, *args, **kwargs)


def aside(module, x):
    module.kept = x * 3
    return x.tanh()


def kept(module, x):
    module.kept = x.tanh()
    return module.kept


def many(module, x):
    for _ in range(20):
        x = x + 1
    return x


SIMPLE = {
    "one node": lambda module, x: x.tanh(),
    "two nodes": lambda module, x: x.tanh() * 2,
    "one input twice": lambda module, x: x * x,
    "no use of the input": lambda module, x: module.weight * 2,
}
LOOKED_UP = {
    "two senders": lambda module, x: x.tanh() + x,
    "a node aside": aside,
    "its output kept": kept,
    "its output is its input": lambda module, x: x,
    "in place": lambda module, x: x.tanh_(),
    "a view": lambda module, x: (x * 2)[1:],
    "a pair": lambda module, x: (x * 2, x * 3),
    "many nodes": many,
}


def inner(x):
    """Something with a node, and no leaf."""
    return x * 1.5


def recorded(fn, x):
    """What a recording has of a call of `fn`, and whether it had to be looked up."""
    gc.collect()
    module = Of(fn, torch.ones(3, 2))
    with hookline.record(module, grads=True) as recording:
        out = module(inner(x))
        dear = looked_up.alive() is not None
        parts = out if isinstance(out, tuple) else (out,)
        sum((part * (2 + number)).sum() for number, part in enumerate(parts)).backward()
    call = recording[""]
    return call.grad_input, call.grad_output, dear


@needs_c
@pytest.mark.parametrize("name", SIMPLE)
def test_simple_calls_are_not_looked_up(name):
    recorded(SIMPLE["one node"], torch.ones(3, 2, requires_grad=True))  # the first of all is: see `leaves.Kept`
    assert not recorded(SIMPLE[name], torch.randn(3, 2, requires_grad=True))[2]


@pytest.mark.parametrize("name", LOOKED_UP)
def test_calls_that_nodes_do_not_tell_are_looked_up(name):
    assert recorded(LOOKED_UP[name], torch.randn(3, 2, requires_grad=True))[2]


@pytest.mark.parametrize("name", [*SIMPLE, *LOOKED_UP])
def test_gradients_are_those_that_autograd_gives(name):
    fn = {**SIMPLE, **LOOKED_UP}[name]
    x = torch.randn(3, 2, requires_grad=True)
    grad_input, grad_output, _ = recorded(fn, x)
    entered = inner(x.detach()).requires_grad_()
    out = Of(fn, torch.ones(3, 2))(entered * 1 if name == "in place" else entered)
    parts = out if isinstance(out, tuple) else (out,)
    outs = grad_output if isinstance(grad_output, tuple) else (grad_output,)
    for number, (part, found) in enumerate(zip(parts, outs, strict=True)):
        assert torch.equal(found, torch.full_like(part, 2.0 + number))
    total = sum((part * (2 + number)).sum() for number, part in enumerate(parts))
    (expected,) = torch.autograd.grad(total, entered, allow_unused=True)
    (found,) = grad_input
    assert (found is None and expected is None) or torch.equal(found, expected)


@pytest.mark.parametrize("shape", [lambda y: [y], lambda y: {"y": y}, lambda y: (y.detach(), y), lambda y: (y,)])
def test_a_tensor_in_a_structure_is_shown_in_that_structure(shape):
    """Both gradients are known at once as those of a plain call are, but it is none."""
    model, x = nn.Sequential(Of(lambda module, x: shape(x.tanh()))), torch.zeros(2, requires_grad=True)
    seen = []
    with (
        hookline.record(model, "0", grads=True) as recording,
        hookline.register_backward_hook(model, lambda m, i, o: seen.append((i, o)), "0"),
    ):
        out = model[0](inner(x))
        found = out["y"] if isinstance(out, dict) else out[-1]
        (found * 3).sum().backward()
    expected = shape(torch.full((2,), 3.0))
    if isinstance(expected, tuple) and len(expected) == 2:
        expected = (None, expected[1])
    as_tuple = expected if isinstance(expected, tuple) else (expected,)
    (((grad_input,), grad_output),) = seen
    assert str(grad_output) == str(as_tuple) and str(recording["0"].grad_output) == str(expected)
    assert torch.equal(grad_input, torch.full((2,), 3.0)) and torch.equal(recording["0"].grad_input[0], grad_input)


@needs_c
def test_modes_have_a_call_looked_at_the_long_way_and_it_is_simple_all_the_same():
    with torch.device("cpu"):  # a function mode
        grad_input, grad_output, dear = recorded(SIMPLE["two nodes"], torch.zeros(3, 2, requires_grad=True))
    assert not dear and torch.equal(grad_input[0], torch.full((3, 2), 4.0)) and (grad_output == 2).all()


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.part = nn.Linear(2, 2)

    def forward(self, x):
        return self.part(x) + x


def hooked(model, x, hook=None):
    """The gradient of a leaf, what a backward hook on every module saw, and whether calls were looked up."""
    gc.collect()
    seen = []

    def keep(module, grad_input, grad_output):
        seen.append((type(module).__name__, grad_input, grad_output))
        return hook and hook(grad_input)

    with hookline.register_backward_hook(model, keep, lambda name, module: name != ""):
        out = model(x)
        dear = looked_up.alive() is not None
        out.sum().backward()
    grad, x.grad = x.grad, None
    return grad, seen, dear


@needs_c
def test_the_view_of_a_leaf_needs_no_look():
    model, x = nn.Sequential(nn.Linear(2, 2), nn.Tanh()), torch.randn(3, 2, requires_grad=True)
    model(x).sum().backward()
    plain, x.grad = x.grad, None
    hooked(model, x)
    grad, seen, dear = hooked(model, x)
    assert not dear and torch.equal(grad, plain) and torch.equal(seen[-1][1][0], plain)
    assert torch.equal(hooked(model, x, lambda grads: (grads[0] * 2,))[0], plain * 4)


def test_what_a_hook_keeps_of_a_leaf_is_not_added_to():
    model, x = nn.Sequential(nn.Tanh()), torch.randn(3, 2, requires_grad=True)
    seen = []
    with hookline.register_backward_hook(model, lambda m, i, o: seen.append(i[0].detach()), "0"):
        model(x).sum().backward()
        first = seen[0].clone()
        model(x).sum().backward()
    assert torch.equal(seen[0], first) and torch.equal(x.grad, first * 2)


def test_a_leaf_that_the_module_uses_by_itself_is_looked_up():
    """Its gradient is a sum, and the view would have it made in another order."""
    module = nn.Linear(3, 3, bias=False)
    _, seen, dear = hooked(nn.Sequential(module), module.weight)
    assert dear and len(seen) == 1


def test_a_leaf_that_others_use_too_has_the_bits_that_it_has_without_hooks():
    torch.manual_seed(1)
    model, x = Model(), torch.randn(5, 2, requires_grad=True)
    (model(x) * x).sum().backward()
    plain, x.grad = x.grad, None
    with hookline.register_backward_hook(model, lambda m, i, o: None, "part"):
        (model(x) * x).sum().backward()
    assert torch.equal(x.grad, plain)


def test_a_view_of_a_call_that_failed_is_still_looked_after():
    class Fails(nn.Module):
        def forward(self, x):
            self.kept = x
            raise ValueError("no")

    module, x = Fails(), torch.ones(2, requires_grad=True)
    with hookline.register_backward_hook(module, lambda m, i, o: None), pytest.raises(ValueError, match="no"):
        module(x)
    assert module.kept.grad_fn.metadata[VIEW] is looked_up.alive() is not None


def test_a_call_of_another_thread_is_looked_up():
    code = (
        "import threading, torch, hookline; from torch import nn\n"
        "from hookline.backends.torch.grads.marks import looked_up\n"
        "m, x = nn.Sequential(nn.Tanh()), torch.ones(2, requires_grad=True) * 1; found = []\n"
        "def run():\n"
        "    out = m(x); found.append(looked_up.alive() is not None); out.sum().backward()\n"
        "with hookline.record(m, grads=True) as rec:\n"
        "    thread = threading.Thread(target=run); thread.start(); thread.join()\n"
        "print(found, rec['0'].grad_output.tolist())"
    )
    assert printed(code) == "[True] [1.0, 1.0]"


def test_without_a_compiler_all_calls_are_looked_up_and_gradients_are_the_same():
    code = (
        "import importlib.util as u; find = u.find_spec\n"
        "u.find_spec = lambda name, *a: None if name.endswith(('_simple', '_under_way')) else find(name, *a)\n"
        "import hookline, torch; from torch import nn\n"
        "from hookline.backends.torch.grads.marks import looked_up\n"
        "m, x, seen = nn.Sequential(nn.Tanh(), nn.Tanh()), torch.zeros(2, requires_grad=True), []\n"
        "with (hookline.record(m, grads=True) as rec,\n"
        "      hookline.register_backward_hook(m, lambda m, i, o: seen.append(i[0].tolist()), '*')):\n"
        "    out = m(x); dear = looked_up.alive() is not None; out.sum().backward()\n"
        "from hookline.hooks.site_tap import CallsUnderWay as kind\n"
        "print(kind.__name__)\n"
        "print(dear, rec['0'].grad_input[0].tolist(), rec['1'].grad_output.tolist(), seen, x.grad.tolist())"
    )
    ones = [1.0, 1.0]
    assert printed(code) == f"CallsUnderWayByPython\nTrue {ones} {ones} {[ones, ones]} {ones}"


def printed(code):
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@needs_c
def test_nothing_of_a_simple_call_stays():
    gc.collect()
    module, x = nn.Sequential(nn.Linear(2, 2)), torch.ones(1, 2, requires_grad=True) * 1
    with hookline.record(module, grads=True) as recording:
        out = module(x)
    before = [thing for thing in gc.get_objects() if issubclass(type(thing), Heard)]
    del out, recording
    gc.collect()
    assert before
    del before
    assert not [thing for thing in gc.get_objects() if issubclass(type(thing), Heard)]
