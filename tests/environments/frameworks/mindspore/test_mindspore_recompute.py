"""Recomputation: a forward that MindSpore repeats in the backward is not a second call, and has its gradients."""

import mindspore as ms
import numpy as np
import pytest
from mindspore import Tensor, nn, ops

import hookline


class Block(nn.Cell):
    def __init__(self):
        super().__init__()
        self.fc = nn.Dense(4, 4)

    def construct(self, x):
        return ops.relu(self.fc(x))


class Net(nn.Cell):
    """Calls `a`, `b` and `a` again."""

    def __init__(self):
        super().__init__()
        self.a, self.b = Block(), Block()

    def construct(self, x):
        return self.a(self.b(self.a(x)))


class Unentered(Net):
    """Repeats `b` in the other way that MindSpore has."""

    def construct(self, x):
        return self.a(ms.recompute(self.b, self.a(x), use_reentrant=False))


X = Tensor(np.random.default_rng(0).standard_normal((2, 4)).astype(np.float32))


def recorded(model, weights):
    for parameter, value in zip(model.get_parameters(), weights, strict=True):
        parameter.set_data(Tensor(value))
    with hookline.record(model, inputs=True, grads=True) as rec:
        grads = ms.grad(lambda x: (model(x) ** 2).sum(), 0, model.trainable_params())(X)
    return rec, grads


def repeated():
    model = Net()
    model.a.recompute()
    model.b.recompute()
    return model


@pytest.mark.parametrize("build", [repeated, Unentered])
def test_a_repeated_forward_is_not_a_second_call_and_has_its_gradients(build):
    weights = [parameter.asnumpy().copy() for parameter in Net().get_parameters()]
    wanted, grads = recorded(Net(), weights)
    found, repeated_grads = recorded(build(), weights)
    assert found.names == wanted.names
    told = {entry.why for entry in found.audit()}
    assert told <= {
        None,
        "its forward was repeated once in a backward",
        "its forward was repeated 2 times in a backward",
    }
    assert len(told) > 1
    for name in wanted.names:
        assert len(found[name].calls) == len(wanted[name].calls)
        for a, b in zip(found[name].calls, wanted[name].calls, strict=True):
            np.testing.assert_array_equal(a.output.asnumpy(), b.output.asnumpy())
            np.testing.assert_allclose(a.grad_output.asnumpy(), b.grad_output.asnumpy(), rtol=1e-6)
            np.testing.assert_allclose(a.grad_input[0].asnumpy(), b.grad_input[0].asnumpy(), rtol=1e-6)
    np.testing.assert_allclose(repeated_grads[0].asnumpy(), grads[0].asnumpy(), rtol=1e-6)


def test_the_cells_by_which_mindspore_repeats_are_no_sites():
    model = repeated()
    with hookline.record(model) as rec:
        model(X)
    assert rec.names == ["a.fc", "a", "b.fc", "b", ""]
    assert hookline.summary(model, (2, 4)).total_params == 40


def test_a_watch_counts_a_repeated_forward_once():
    model = repeated()
    with hookline.watch(model, progress=False) as w:
        ms.grad(lambda x: model(x).sum(), 0, model.trainable_params())(X)
    assert [row["call"] for row in w.rows("a.fc", kind="output")] == [0, 1]
    assert w.rows("a.fc", kind="output")[0]["count"] == 8
