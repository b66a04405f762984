"""Forwards that end early inside of ms.grad: MindSpore is afterwards as if they had never begun."""

import mindspore as ms
import numpy as np
import pytest
from mindspore import Tensor, nn, ops
from mindspore.graph import api

import hookline

X = np.linspace(-1, 1, 8, dtype=np.float32).reshape(2, 4)


class Net(nn.Cell):
    def __init__(self):
        super().__init__()
        self.a, self.act, self.b = nn.Dense(4, 3), nn.Tanh(), nn.Dense(3, 2)

    def construct(self, x):
        return self.b(self.act(self.a(x)))


@pytest.fixture
def net():
    ms.set_seed(1)
    return Net()


def ways(net):
    """Everything that differentiates, as functions without arguments."""
    params = list(net.trainable_params())

    def loss(x):
        return (net(x) ** 2).sum()

    def slope(x):
        return ms.grad(loss)(x).sum()

    return {
        "grad": lambda: ms.grad(loss, 0, params)(Tensor(X)),
        "value_and_grad": lambda: ms.value_and_grad(loss, None, params)(Tensor(X * 2)),
        "grad of a cell": lambda: ms.grad(net)(Tensor(X)),
        "grad of a grad": lambda: ms.grad(slope)(Tensor(X)),
        "vjp": lambda: ops.vjp(loss, Tensor(X))[1](Tensor(1.0)),
    }


def numbers(found):
    if isinstance(found, (tuple, list)):
        return [one for part in found for one in numbers(part)]
    return [found.asnumpy().tolist()]


def fails(*told):
    raise ValueError("of the hook")


def stopping(net):
    return hookline.record(net, "a", stop=True)


ENDINGS = {
    "stop": stopping,
    "forward hook": lambda net: hookline.register_forward_hook(net, fails, "act"),
    "pre-hook": lambda net: hookline.register_forward_pre_hook(net, fails, "act"),
    "hook on the model": lambda net: hookline.register_forward_hook(net, fails),
    "op hook": lambda net: hookline.register_op_hook(net, fails),
    "edit": lambda net: hookline.edit(net, {"act": fails}),
    "skip": lambda net: hookline.edit(net, {"act": hookline.skip(fails)}),
}


@pytest.mark.parametrize("ending", ENDINGS)
@pytest.mark.parametrize("way", ["grad", "value_and_grad", "grad of a cell", "grad of a grad", "vjp"])
def test_a_forward_that_ends_early_leaves_nothing_in_mindspore(net, ending, way):
    wanted = {name: numbers(work()) for name, work in ways(net).items()}
    marks = net.requires_grad, net.is_top_cell
    try:
        with ENDINGS[ending](net):
            ways(net)[way]()
    except (hookline.HooklineError, ValueError):
        assert ending != "stop"
    else:
        assert ending == "stop"
    assert (net.requires_grad, net.is_top_cell) == marks
    assert not api._pynative_executor.grad_flag()
    assert not net(Tensor(X))._requires_grad
    assert {name: numbers(work()) for name, work in ways(net).items()} == wanted


def test_a_cell_that_is_set_to_be_differentiated_comes_through_as_well(net):
    net.set_grad()
    with hookline.record(net, "a", stop=True):
        net(Tensor(X))
    assert not net.is_top_cell and not api._pynative_executor.grad_flag()


def test_a_block_inside_of_a_differentiated_function_leaves_that_under_way(net):
    def loss(x):
        with hookline.record(net, "a", stop=True):
            net(x)
        return (x**3).sum()

    assert np.allclose(ms.grad(loss)(Tensor(X)).asnumpy(), 3 * X**2)
    assert not api._pynative_executor.grad_flag()


def test_mindspores_own_functions_are_back_afterwards(net):
    from hookline.backends.mindspore import compat

    before = [getattr(owner, name) for owner, name in compat.DIFFERENTIATED]
    first = hookline.register_forward_hook(net, lambda *told: None)
    second = hookline.register_forward_hook(net, lambda *told: None)
    first.remove()
    assert [getattr(owner, name) for owner, name in compat.DIFFERENTIATED] != before
    second.remove()
    assert [getattr(owner, name) for owner, name in compat.DIFFERENTIATED] == before


def test_moving_statistics_are_no_parameters():
    model = nn.SequentialCell(nn.Dense(4, 3), nn.BatchNorm1d(3))
    found = hookline.summary(model, (5, 4))
    assert (found.total_params, found.trainable_params) == (15 + 6, 15 + 6)
    model[0].weight.requires_grad = False
    assert (hookline.summary(model, (5, 4)).total_params, hookline.summary(model, (5, 4)).trainable_params) == (
        21,
        9,
    )
    with hookline.edit(model, {"1.moving_mean": lambda mean: mean + 1}):  # a tensor of the model all the same
        model(Tensor(np.ones((5, 4), np.float32)))
