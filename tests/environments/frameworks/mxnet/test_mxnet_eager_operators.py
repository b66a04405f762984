"""Op hooks on blocks that run as they are written: forward, backward, and nothing of hookline's own."""

import mxnet as mx
import pytest
from mxnet import autograd, gluon, nd
from mxnet.gluon import nn
from mxnet.ndarray import register

import hookline
from tests.environments.frameworks.mxnet.nets import Mul, data, same_bits, step


class Plain(gluon.Block):
    """Computes with arrays in a forward of its own, calls a hybridized part, and a part that is not."""

    def __init__(self):
        super().__init__()
        self.fc = nn.Dense(3, in_units=3)
        self.twice = Mul(2)

    def forward(self, x):
        return self.twice(self.fc(x) + x).relu()


@pytest.fixture
def plain():
    made = Plain()
    made.initialize(mx.init.Xavier())
    made.fc.hybridize()
    return made


def test_operators_of_a_net_that_is_not_compiled_are_told(plain):
    x = data(2, 3)
    expected = plain(x).asnumpy()
    seen = []
    with hookline.register_op_hook(plain, lambda name, op, array: seen.append((name, op, array))):
        assert not plain.fc._active
        assert plain(x).asnumpy().tobytes() == expected.tobytes()
    assert [(name, op) for name, op, _ in seen] == [
        ("fc/FullyConnected.output", "FullyConnected"),
        ("/broadcast_add.output", "broadcast_add"),
        ("twice/_mul_scalar.output", "_mul_scalar"),
        ("/relu.output", "relu"),
    ]
    assert seen[-1][2].asnumpy().tobytes() == expected.tobytes()
    assert plain.fc._active and hookline.installed(plain) == []
    plain(x)
    assert len(seen) == 4


def test_their_backward_is_told_by_the_gradients_of_their_inputs(plain):
    x = data(2, 3)
    expected = step(plain, x)
    seen = []
    with hookline.register_op_hook(plain, seen.append, events=True):
        assert same_bits(step(plain, x), expected)
    backward = [(e.module, e.op, e.index) for e in seen if e.phase == "backward"]
    assert backward == [
        ("", "_backward_relu", -1),
        ("twice", "_backward_mul_scalar", -1),
        *[("", "_backward_broadcast_add", 0), ("", "_backward_broadcast_add", 1)],
        *[("fc", "_backward_FullyConnected", index) for index in range(3)],
    ]
    weight = next(e for e in seen if e.op == "_backward_FullyConnected" and e.index == 1)
    assert weight.array.asnumpy().tobytes() == expected["fc.weight gradient"].tobytes()


def test_a_second_backward_over_the_same_graph_has_the_same_names(plain):
    seen = []
    with hookline.register_op_hook(plain, lambda name, op, array: seen.append(name)):
        with autograd.record():
            loss = plain(data(2, 3)).sum()
        forward = len(seen)
        loss.backward(retain_graph=True)
        first = seen[forward:]
        loss.backward()
    assert len(first) == 5 and seen[forward:] == first * 2


def test_operators_of_hooks_are_not_the_models(plain):
    seen = []
    with (
        hookline.register_op_hook(plain, lambda name, op, array: seen.append(op)),
        hookline.record(plain, inputs=True),
        hookline.register_forward_hook(plain, lambda block, args, out: nd.exp(out), "fc"),
    ):
        plain(data(2, 3))
    assert seen == ["FullyConnected", "broadcast_add", "_mul_scalar", "relu"]


def test_calls_and_repeated_operators_are_told_apart():
    class Net(gluon.Block):
        def __init__(self):
            super().__init__()
            self.twice = Mul(2)

        def forward(self, x):
            return self.twice(self.twice(x) + 1 + 1)

    seen = []
    net = Net()
    with hookline.register_op_hook(net, lambda name, op, array: seen.append(name)):
        for _ in range(2):
            net(nd.ones(1))
    once = [
        "twice/_mul_scalar.output",
        "/_plus_scalar.output",
        "/_plus_scalar_1.output",
        "twice#1/_mul_scalar.output",
    ]
    assert seen == once * 2


def test_an_error_while_operators_run_one_by_one(plain):
    invoke = register._imperative_invoke
    with (
        hookline.register_op_hook(plain, lambda name, op, array: 1 / 0),
        pytest.raises(hookline.HookError, match=r"op hook at site 'fc/FullyConnected.output'"),
    ):
        plain(data(2, 3))
    assert register._imperative_invoke is invoke
    plain(data(2, 3))
