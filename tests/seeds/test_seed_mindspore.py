"""Seed 001, MindSpore's "Hook Programming": its seven examples in torch, with the numbers it prints.

And the table of shared/notes/frameworks.md, in which MindSpore >= 2.7 and PyTorch agree.
"""

from contextlib import ExitStack
from itertools import permutations

import pytest
import torch
from torch import nn

import hookline

ONES = [[[[1.0]], [[1.0]]]]
pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::DeprecationWarning", "ignore:The .grad")


class AddThenReLU(nn.Module):
    """The Net of most examples: relu(x + y)."""

    def __init__(self):
        super().__init__()
        self.relu = nn.ReLU()

    def forward(self, x, y):
        return self.relu(x + y)


class ConvNormReLU(nn.Module):
    """The Net of the two backward examples; MindSpore's BatchNorm2d starts in evaluation mode."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(1, 2, kernel_size=2, bias=False)
        nn.init.ones_(self.conv.weight)
        self.bn = nn.BatchNorm2d(2, momentum=0.01, eps=0.00001).eval()  # MindSpore counts momentum the other way
        self.relu = nn.ReLU()

    def forward(self, x):
        return self.relu(self.bn(self.conv(x)))


@pytest.fixture(autouse=True, params=["as written", "aot_eager", "inductor"])
def ran(request, fresh_compiler):
    """How a net is run: each example gives the same, eager and compiled."""
    RAN.append(request.param)
    yield
    RAN.clear()


RAN = []


def gradients(net, *values):
    """What ms.grad gives: the gradients of the sum of the output, None where the graph is cut."""
    if RAN[0] != "as written":
        net = torch.compile(net, backend=RAN[0], fullgraph=True)
    inputs = [value.clone().requires_grad_() for value in values]
    output = net(*inputs)
    if output.requires_grad:
        return torch.autograd.grad(output.sum(), inputs, allow_unused=True)
    return (None,) * len(inputs)


def printed(tensor):
    """The text that numpy prints of a tensor, as in the seed: that is how many digits it promises."""
    return str(tensor.detach().numpy())


@pytest.fixture
def one():
    return torch.ones(1)


def test_hookbackward_sees_the_gradient_at_its_point():
    seen = []
    hook = hookline.HookBackward(seen.append)

    def hook_test(x, y):
        return hook(x * y) * y

    grads = gradients(hook_test, torch.tensor(1.0), torch.tensor(2.0))
    assert seen == [(torch.tensor(2.0),)]
    assert grads == (torch.tensor(4.0), torch.tensor(4.0))


@pytest.mark.parametrize("wrap", [tuple, lambda grads: grads[0]], ids=["tuple", "tensor"])
def test_hookbackward_may_return_a_new_gradient(wrap):
    hook = hookline.HookBackward(lambda grads: wrap([grads[0] * 10]))

    def hook_test(x, y):
        return hook(x * y) * y

    # dz/dx = 10 * y * y; dz/dy = 10 * y * x + x * y
    assert gradients(hook_test, torch.tensor(1.0), torch.tensor(2.0)) == (torch.tensor(40.0), torch.tensor(22.0))


def test_forward_pre_hook_that_hands_its_input_on(one):
    seen = []

    def forward_pre_hook_fn(cell, inputs):
        seen.append((cell, inputs))
        return inputs[0]

    net = AddThenReLU()
    handle = hookline.register_forward_pre_hook(net.relu, forward_pre_hook_fn)
    assert net(one, one) == torch.tensor([2.0])
    assert gradients(net, one, one) == (torch.tensor([1.0]), torch.tensor([1.0]))
    assert seen == [(net.relu, (torch.tensor([2.0]),))] * 2
    handle.remove()
    assert gradients(net, one, one) == (torch.tensor([1.0]), torch.tensor([1.0]))
    assert len(seen) == 2


def test_forward_pre_hook_that_returns_fresh_data_cuts_the_gradient(one):
    seen = []

    def forward_pre_hook_fn(cell, inputs):
        seen.append(inputs)
        return torch.ones(1)

    net = AddThenReLU()
    hookline.register_forward_pre_hook(net.relu, forward_pre_hook_fn)
    # MindSpore prints zeros for inputs that the result does not depend on, and so does compiled code. Eager
    # torch has no gradient there: relu(ones) has no history, so nothing of the graph is left to ask.
    zero = torch.zeros(1)
    assert gradients(net, one, one) == ((None, None) if RAN == ["as written"] else (zero, zero))
    assert seen == [(torch.tensor([2.0]),)]


def test_forward_pre_hook_with_fresh_data_that_needs_a_gradient_gives_the_seeds_zeros(one):
    fresh = torch.ones(1, requires_grad=True)
    net = AddThenReLU()
    hookline.register_forward_pre_hook(net.relu, lambda cell, inputs: fresh)
    x, y = (one.clone().requires_grad_() for _ in range(2))
    output = net(x, y)
    assert torch.autograd.grad(output, (x, y), allow_unused=True, materialize_grads=True) == (
        torch.tensor([0.0]),
        torch.tensor([0.0]),
    )


def test_forward_hook_that_doubles_the_output_doubles_the_gradient(one):
    seen = []

    def forward_hook_fn(cell, inputs, outputs):
        seen.append((cell, inputs, outputs))
        return outputs + outputs

    net = AddThenReLU()
    handle = hookline.register_forward_hook(net.relu, forward_hook_fn)
    assert gradients(net, one, one) == (torch.tensor([2.0]), torch.tensor([2.0]))
    assert seen == [(net.relu, (torch.tensor([2.0]),), torch.tensor([2.0]))]
    handle.remove()
    assert gradients(net, one, one) == (torch.tensor([1.0]), torch.tensor([1.0]))
    assert len(seen) == 1


def test_backward_pre_hook_on_a_batch_norm():
    seen = []
    net = ConvNormReLU()
    handle = hookline.register_backward_pre_hook(net.bn, lambda cell, grad: seen.append((cell, grad)))
    (with_hook,) = gradients(net, torch.ones(1, 1, 2, 2))
    ((cell, grad_output),) = seen
    assert cell is net.bn
    assert isinstance(grad_output, tuple) and [grad.tolist() for grad in grad_output] == [ONES]
    assert printed(with_hook) == "[[[[1.99999 1.99999]\n   [1.99999 1.99999]]]]"
    handle.remove()
    (without,) = gradients(net, torch.ones(1, 1, 2, 2))
    assert torch.equal(without, with_hook)
    assert len(seen) == 1


def test_backward_hook_on_a_batch_norm():
    seen = []
    net = ConvNormReLU()
    handle = hookline.register_backward_hook(net.bn, lambda *parts: seen.append(parts))
    (with_hook,) = gradients(net, torch.ones(1, 1, 2, 2))
    ((cell, grad_input, grad_output),) = seen
    assert cell is net.bn
    assert isinstance(grad_input, tuple) and isinstance(grad_output, tuple)
    # 9.99994993e-01 names one float32 and no other.
    assert [f"{value:.8e}" for value in grad_input[0].flatten().tolist()] == ["9.99994993e-01"] * 2
    assert grad_input[0].shape == (1, 2, 1, 1)
    assert [grad.tolist() for grad in grad_output] == [ONES]
    assert printed(with_hook) == "[[[[1.99999 1.99999]\n   [1.99999 1.99999]]]]"
    handle.remove()
    (without,) = gradients(net, torch.ones(1, 1, 2, 2))
    assert torch.equal(without, with_hook)
    assert len(seen) == 1


@pytest.mark.parametrize("original", [True, False], ids=["original", "as-it-leaves"])
def test_all_four_hooks_on_one_module(one, original):
    """With original=True, MindSpore's older meaning, which the seed prints; else that of >= 2.7."""
    log = []

    def forward_pre_hook_fn(cell, inputs):
        log.append(("forward pre", inputs))
        return inputs[0]

    def forward_hook_fn(cell, inputs, outputs):
        log.append(("forward", inputs, outputs))
        return outputs + outputs

    net = AddThenReLU()
    hookline.register_forward_pre_hook(net.relu, forward_pre_hook_fn)
    hookline.register_forward_hook(net.relu, forward_hook_fn)
    hookline.register_backward_pre_hook(net.relu, lambda cell, grad: log.append(("backward pre", grad)))
    hookline.register_backward_hook(
        net.relu, lambda cell, grad_in, grad_out: log.append(("backward", grad_out, grad_in)), original=original
    )
    grads = gradients(net, one, one)
    two = torch.tensor([2.0])
    assert log == [
        ("forward pre", (two,)),
        ("forward", (two,), two),
        ("backward pre", (one,)),
        ("backward", (two if original else one,), (two,)),
    ]
    assert grads == (two, two)


# The table: y = 3x, pre-hook x5, forward hook x7, downstream x11.


class Triple(nn.Module):
    def forward(self, x):
        return 3 * x


TABLE = {  # (fpre, fwd): bpre.grad_output, bwd.grad_input, bwd.grad_output, dx
    (False, False): (11, 33, 11, 33),
    (False, True): (11, 231, 11, 231),
    (True, False): (11, 33, 11, 165),
    (True, True): (11, 231, 11, 1155),
}
OLD_GRAD_OUTPUT = {(False, False): 11, (False, True): 77, (True, False): 11, (True, True): 77}


def orders(*always):
    """Every combination of forward hooks, each in every order of registration with `always`."""
    return [
        pytest.param((pre, post), order, id="-".join(order))
        for pre, post in TABLE
        for order in permutations([*always, *(["fpre"] if pre else []), *(["fwd"] if post else [])])
    ]


def registrations(module, seen, *, factor=None, original=False):
    """What each name of an order registers; returns handles and recordings."""

    def backward_pre(cell, grad_output):
        seen["bpre"] = grad_output
        return None if factor is None else (grad_output[0] * factor,)

    def backward(cell, grad_input, grad_output):
        seen["bwd"] = grad_input, grad_output

    return {
        "fpre": lambda: hookline.register_forward_pre_hook(module, lambda cell, args: (args[0] * 5,)),
        "fwd": lambda: hookline.register_forward_hook(module, lambda cell, args, output: output * 7),
        "bpre": lambda: hookline.register_backward_pre_hook(module, backward_pre),
        "bwd": lambda: hookline.register_backward_hook(module, backward, original=original),
        "record": lambda: hookline.record(module, grads=True),
    }


def run(module):
    x = torch.tensor(1.0, requires_grad=True)
    (module(x) * 11).backward()
    return x.grad.item()


@pytest.mark.parametrize(("combination", "order"), orders("bpre", "bwd"))
def test_table_through_the_primitives(combination, order):
    module, seen = Triple(), {}
    for name in order:
        registrations(module, seen)[name]()
    dx = run(module)
    (grad_input,), (grad_output,) = seen["bwd"]
    found = (seen["bpre"][0].item(), grad_input.item(), grad_output.item(), dx)
    assert found == TABLE[combination]


@pytest.mark.parametrize(("combination", "order"), orders("bpre", "bwd"))
def test_table_with_original_has_the_older_grad_output(combination, order):
    module, seen = Triple(), {}
    for name in order:
        registrations(module, seen, original=True)[name]()
    dx = run(module)
    (grad_input,), (grad_output,) = seen["bwd"]
    leaving, entering, _, whole = TABLE[combination]
    found = (seen["bpre"][0].item(), grad_input.item(), grad_output.item(), dx)
    assert found == (leaving, entering, OLD_GRAD_OUTPUT[combination], whole)


@pytest.mark.parametrize(("combination", "order"), orders("record"))
def test_table_through_record(combination, order):
    module = Triple()
    with ExitStack() as stack:
        entered = {name: stack.enter_context(registrations(module, {})[name]()) for name in order}
        dx = run(module)
    site = entered["record"][""]
    leaving, entering, _, whole = TABLE[combination]
    assert (site.grad_output.item(), [grad.item() for grad in site.grad_input], dx) == (leaving, [entering], whole)


@pytest.mark.parametrize("order", [("bpre", "bwd"), ("bwd", "bpre")], ids="-".join)
def test_backward_hook_sees_what_the_backward_pre_hook_put_there(order):
    module, seen = Triple(), {}
    for name in order:
        registrations(module, seen, factor=100)[name]()
    dx = run(module)
    (grad_input,), (grad_output,) = seen["bwd"]
    assert seen["bpre"][0].item() == 11
    assert (grad_output.item(), grad_input.item(), dx) == (1100, 3300, 3300)


def test_two_backward_pre_hooks_run_in_order_of_registration():
    module, log = Triple(), []

    def hook(name, change):
        def run(cell, grad_output):
            log.append((name, grad_output[0].item()))
            return (change(grad_output[0]),)

        return run

    hookline.register_backward_pre_hook(module, hook("plus one", lambda grad: grad + 1))
    hookline.register_backward_pre_hook(module, hook("times ten", lambda grad: grad * 10))
    assert run(module) == 3 * (11 + 1) * 10
    assert log == [("plus one", 11), ("times ten", 12)]


def test_two_backward_hooks_run_in_order_of_registration():
    module, log = Triple(), []

    def hook(name, change):
        def run(cell, grad_input, grad_output):
            log.append((name, grad_input[0].item(), grad_output[0].item()))
            return (change(grad_input[0]),)

        return run

    hookline.register_backward_hook(module, hook("plus one", lambda grad: grad + 1))
    hookline.register_backward_hook(module, hook("times ten", lambda grad: grad * 10))
    assert run(module) == (33 + 1) * 10
    assert log == [("plus one", 33, 11), ("times ten", 34, 11)]


@pytest.mark.parametrize("register", ["register_forward_pre_hook", "register_forward_hook"])
def test_two_forward_hooks_run_in_order_of_registration(register):
    module = Triple()
    add = getattr(hookline, register)
    if register == "register_forward_pre_hook":
        add(module, lambda cell, args: args[0] + 1)
        add(module, lambda cell, args: args[0] * 10)
        assert module(torch.tensor(1.0)) == 3 * (1 + 1) * 10
    else:
        add(module, lambda cell, args, output: output + 1)
        add(module, lambda cell, args, output: output * 10)
        assert module(torch.tensor(1.0)) == (3 + 1) * 10
