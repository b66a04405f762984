"""Training on MindSpore: its ways to step are heard, and looking leaves no bit and no hook behind."""

import mindspore as ms
import numpy as np
import pytest
from mindspore import Tensor, nn
from mindspore.experimental import optim

import hookline

X = np.random.default_rng(1).standard_normal((4, 3)).astype(np.float32)


class Net(nn.Cell):
    def __init__(self):
        super().__init__()
        self.fc1, self.norm, self.fc2 = nn.Dense(3, 4), nn.BatchNorm1d(4), nn.Dense(4, 1)
        rng = np.random.default_rng(2)
        for parameter in self.trainable_params():
            parameter.set_data(Tensor(rng.standard_normal(parameter.shape).astype(np.float32)))

    def construct(self, x):
        return self.fc2(self.norm(self.fc1(x)))


class Loss(nn.Cell):
    def __init__(self, model):
        super().__init__(auto_prefix=False)
        self.model = model

    def construct(self, x):
        return (self.model(x) ** 2).mean()


def by_hand(optimizer):
    def train(model, steps):
        own = optimizer(model.trainable_params())
        step = ms.value_and_grad(lambda x: (model(x) ** 2).mean(), None, own.parameters)
        for _ in range(steps):
            own(step(Tensor(X))[1])

    return train


def by_cell(model, steps):
    train = nn.TrainOneStepCell(Loss(model), nn.SGD(model.trainable_params(), learning_rate=0.1))
    train.set_train()
    for _ in range(steps):
        train(Tensor(X))


WAYS = {
    "nn.SGD": by_hand(lambda params: nn.SGD(params, learning_rate=0.1)),
    "nn.Adam": by_hand(lambda params: nn.Adam(params, learning_rate=0.1)),
    "experimental SGD": by_hand(lambda params: optim.SGD(params, lr=0.1)),
    "TrainOneStepCell": by_cell,
}


def values(model):
    return {parameter.name: parameter.asnumpy().copy() for parameter in model.get_parameters()}


@pytest.mark.parametrize("way", WAYS)
def test_steps_are_heard_and_training_is_the_same_to_the_last_bit(way):
    plain, watched = Net().set_train(), Net().set_train()
    WAYS[way](plain, 3)
    with hookline.watch(watched, inputs=True, progress=False) as w, hookline.record(watched, grads=True):
        WAYS[way](watched, 3)
    assert sorted({row["step"] for row in w.rows()}) == [0, 1, 2]
    kinds = {row["kind"] for row in w.rows()}
    assert kinds == {"input", "output", "grad_input", "grad_output", "param", "param_grad", "update"}
    for (name, a), b in zip(values(plain).items(), values(watched).values(), strict=True):
        np.testing.assert_array_equal(a, b, err_msg=name)
    assert hookline.installed(watched) == []
    for _, cell in watched.cells_and_names():
        assert not cell._forward_hook and not cell._forward_pre_hook
        assert not cell._forward_hook_with_kwargs and not cell._forward_pre_hook_with_kwargs
    assert "__call__" not in vars(nn.Optimizer) and "__call__" not in vars(optim.Optimizer)


def test_an_optimizer_of_another_model_makes_no_step():
    watched, other = Net(), Net()
    with hookline.watch(watched, progress=False) as w:
        WAYS["nn.SGD"](other, 2)
        ms.grad(lambda x: watched(x).sum())(Tensor(X))
    assert {row["step"] for row in w.rows()} == {0}
    assert "param" not in {row["kind"] for row in w.rows()}


def test_hooks_of_others_stay_where_they_are_and_theirs():
    cell = nn.ReLU()
    seen = []
    first = cell.register_forward_hook(lambda cell, args, out: seen.append("first"))
    ours = hookline.register_forward_hook(cell, lambda cell, args, out: (seen.append("ours"), ours.remove())[0])
    cell.register_forward_hook(lambda cell, args, out: seen.append("last"))
    cell(Tensor(X))
    cell(Tensor(X))
    assert seen == ["first", "ours", "last", "first", "last"]
    first.remove()
    cell(Tensor(X))
    assert seen[5:] == ["last"]


def test_a_recording_sees_what_hooks_of_others_make_of_a_value():
    cell = nn.ReLU()
    cell.register_forward_hook(lambda cell, args, out: out * 10)
    with hookline.record(cell) as rec:
        output = cell(Tensor(X))
    np.testing.assert_array_equal(rec[""].output.asnumpy(), output.asnumpy())


def test_a_cell_with_a_bprop_of_its_own_is_seen():
    class Custom(nn.Cell):
        def construct(self, x):
            return x * 2

        def bprop(self, x, out, dout):
            return (dout * 100,)

    model = nn.SequentialCell(Custom())
    with hookline.record(model, grads=True) as rec:
        grad = ms.grad(lambda x: model(x).sum())(Tensor(X))
    np.testing.assert_array_equal(rec["0"].output.asnumpy(), X * 2)
    np.testing.assert_array_equal(rec["0"].grad_input[0].asnumpy(), np.full_like(X, 100))
    np.testing.assert_array_equal(grad.asnumpy(), np.full_like(X, 100))


def test_dtypes_are_kept_cast_and_reduced():
    model = nn.SequentialCell(nn.Identity())
    for dtype in (ms.float16, ms.bfloat16, ms.float64, ms.int32):
        x = Tensor(np.array([0.0, 1.0, 3.0])).astype(dtype)
        with hookline.record(model) as rec, hookline.watch(model, progress=False) as w:
            model(x)
        assert rec["0"].output.dtype == dtype
        assert w.rows("0", kind="output")[0]["mean"] == pytest.approx(4 / 3, rel=1e-2)
    with hookline.record(model, dtype="float16") as rec:
        model(Tensor(X))
    assert rec["0"].output.dtype == ms.float16
    with pytest.raises(hookline.InvalidArgument, match="no MindSpore dtype"):
        hookline.record(model, dtype="float17")
    with pytest.raises(hookline.InvalidArgument, match="stay on their own device"):
        hookline.record(model, device="gpu")


def test_structures_in_and_out_of_a_saved_recording(tmp_path):
    model = nn.SequentialCell(nn.Identity())
    x = Tensor(np.array([1.0, -2.0])).astype(ms.bfloat16)
    with hookline.record(model, inputs=True) as rec:
        model(x)
    loaded = hookline.load_recording(rec.save(tmp_path / "a.safetensors"))
    assert loaded["0"].output.dtype == ms.bfloat16
    assert loaded["0"].output.astype(ms.float32).asnumpy().tolist() == [1.0, -2.0]
