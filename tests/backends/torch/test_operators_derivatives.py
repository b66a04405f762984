"""Operators inside torch.func, in second derivatives and in inference mode are told once each."""

from collections import Counter

import pytest
import torch
from torch import nn
from torch.autograd import forward_ad
from torch.autograd.functional import jacobian, jvp, vhp
from torch.utils._python_dispatch import TorchDispatchMode

import hookline


def net():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Sequential(nn.Linear(4, 3), nn.Tanh()))


def inputs():
    return torch.linspace(-1, 1, 6).reshape(2, 3).requires_grad_()


def backwards(model, *, times):
    """Derivatives of derivatives, with nothing between the model's own nodes."""
    value, x = None, inputs()
    value = model(x)
    for number in range(times):
        last = number == times - 1
        wanted = [x, *model.parameters()] if last else [x]
        one = torch.ones_like(value)
        value = torch.autograd.grad(value, wanted, one, create_graph=not last, allow_unused=True)[0]


class Counted(TorchDispatchMode):
    """Counts operators that run in the model's forward or in a backward."""

    def __init__(self):
        super().__init__()
        self.seen, self.inside = Counter(), 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if self.inside or torch._C._current_graph_task_id() != -1:
            self.seen[func.overloadpacket.__name__] += 1
        return func(*args, **(kwargs or {}))


def counted(run):
    model, mode = net(), Counted()
    model.register_forward_pre_hook(lambda *told: setattr(mode, "inside", 1))
    model.register_forward_hook(lambda *told: setattr(mode, "inside", 0))
    with mode:
        run(model)
    return mode.seen


def told(run, *, beside=False):
    """The operators that an op hook is told, by their own names; `beside` a recording of gradients or not."""
    model, seen = net(), Counter()

    def hook(name, op, array):
        seen[op.rpartition(".")[2]] += 1

    with hookline.register_op_hook(model, hook):
        if beside:
            with hookline.record(model, inputs=True, grads=True), hookline.watch(model, inputs=True):
                run(model)
        else:
            run(model)
    return seen


@pytest.mark.parametrize("times", [1, 2, 3])
@pytest.mark.parametrize("beside", [False, True])
def test_every_derivative_is_told_once(times, beside):
    def run(model):
        backwards(model, times=times)

    assert told(run, beside=beside) == counted(run)


def dual(model):
    with forward_ad.dual_level():
        model(forward_ad.make_dual(inputs().detach(), torch.ones(2, 3)))


TRANSFORMS = {
    "grad": lambda model: torch.func.grad(lambda x: model(x).sum())(inputs().detach()),
    "jacrev": lambda model: torch.func.jacrev(model)(inputs().detach()),
    "jacfwd": lambda model: torch.func.jacfwd(model)(inputs().detach()),
    "vmap": lambda model: torch.func.vmap(model)(inputs().detach()),
    "jvp": lambda model: torch.func.jvp(model, (inputs().detach(),), (torch.ones(2, 3),)),
    "hessian": lambda model: torch.func.hessian(lambda x: model(x).sum())(inputs().detach()[0]),
    "jacobian": lambda model: jacobian(model, inputs()),
    "jacobian, vectorized": lambda model: jacobian(model, inputs(), vectorize=True),
    "double backward jvp": lambda model: jvp(model, inputs(), torch.ones(2, 3)),
    "vhp": lambda model: vhp(lambda x: model(x).sum(), inputs(), torch.ones(2, 3)),
    "dual numbers": dual,
}


@pytest.mark.filterwarnings("ignore:.*torch.jit")
@pytest.mark.parametrize("transform", TRANSFORMS)
def test_a_recording_of_gradients_adds_no_operator(transform):
    run = TRANSFORMS[transform]
    model = net()
    with hookline.record(model, ops=True) as plain:
        run(model)
    model = net()
    with hookline.record(model, ops=True, grads=True) as full:
        run(model)
    assert [name for name in full.ops if "backward" not in name] == [n for n in plain.ops if "backward" not in n]


@pytest.mark.parametrize("transform", ["double backward jvp", "jacobian", "vhp"])
def test_matrix_products_of_functional_derivatives_are_all_told(transform):
    run = TRANSFORMS[transform]
    wanted, found = counted(run), told(run)
    for name in ("mm", "addmm", "tanh", "tanh_backward", "t"):
        assert found[name] == wanted[name], name


def test_inference_mode_tells_the_same_products_once():
    def run(model):
        with torch.inference_mode():
            model(inputs().detach())

    assert told(run) == {"t": 2, "addmm": 2, "tanh": 2}
