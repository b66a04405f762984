"""Ports of torch models to MindSpore: weights carried over, recordings kept to be compared, diffs of their own."""

import numpy as np
import pytest
from mindspore import Tensor, nn

import hookline
from tests.environments.frameworks import porting


class Vision(nn.Cell):
    """Names of its own, and the activation a cell."""

    def __init__(self, eps=1e-5):
        super().__init__()
        self.stem = nn.Conv2d(3, 4, 3, pad_mode="valid", has_bias=True)
        self.bn = nn.BatchNorm2d(4, eps=eps)
        self.act = nn.ReLU()
        self.grow = nn.Conv2dTranspose(4, 5, 3, stride=2, pad_mode="pad", padding=0, has_bias=True)
        self.head = nn.Dense(5, 3)

    def construct(self, x):
        return self.head(self.grow(self.act(self.bn(self.stem(x)))).mean((2, 3)))


class Text(nn.Cell):
    def __init__(self, approximate=False):
        super().__init__()
        self.tokens = nn.Embedding(11, 8)
        self.ln = nn.LayerNorm((8,), epsilon=1e-5)
        self.mixing = nn.MultiheadAttention(8, 2, batch_first=True)
        self.wide, self.act, self.narrow = nn.Dense(8, 16), nn.GELU(approximate=approximate), nn.Dense(16, 8)

    def construct(self, ids):
        x = self.tokens(ids)
        h = self.ln(x)
        x = x + self.mixing(h, h, h, need_weights=False)[0]
        return x + self.narrow(self.act(self.wide(x)))


class Sound(nn.Cell):
    def __init__(self, scale=1.0):
        super().__init__()
        self.lstm = nn.LSTM(4, 6, num_layers=2, bidirectional=True, batch_first=True)
        self.gated = nn.GRU(12, 5, batch_first=True)
        self.head = nn.Dense(5, 3)
        self.scale = scale

    def construct(self, x):
        return self.head(self.gated(self.lstm(x)[0])[0] * self.scale)


PORTS = {
    "vision": Vision,
    "text": Text,
    "sound": Sound,
    "vision-wrong": lambda: Vision(eps=1e-2),
    "text-wrong": lambda: Text(approximate=True),
    "sound-wrong": lambda: Sound(scale=1.01),
}
X = {name: Tensor(x) for name, x in porting.X.items()}


def ported(port, folder):
    model = PORTS[port]().set_train(False)
    porting.load(model, port.partition("-")[0], folder)
    return model


def recorded(port, folder):
    model = ported(port, folder)
    with hookline.record(model, inputs=True) as rec:
        model(X[port.partition("-")[0]])
    return rec


@pytest.mark.parametrize("port", PORTS)
def test_a_port_has_torchs_weights_and_is_kept(port, tmp_path):
    assert porting.keep(recorded(port, tmp_path), "mindspore", port).exists()


@pytest.mark.parametrize(("port", "site"), [("vision", "bn"), ("text", "act"), ("sound", "head")])
def test_two_recordings_part_where_the_mistake_is(port, site, tmp_path):
    right, wrong = recorded(port, tmp_path), recorded(f"{port}-wrong", tmp_path)
    assert not hookline.diff(right, recorded(port, tmp_path))
    found = hookline.diff(right, wrong)
    assert found and found.first.site == site


@pytest.mark.parametrize(("port", "site"), [("vision", "bn"), ("text", "act")])
def test_two_models_part_where_the_mistake_is(port, site, tmp_path):
    right, again, wrong = (ported(one, tmp_path) for one in (port, port, f"{port}-wrong"))
    assert not hookline.diff(right, again, X[port])
    found = hookline.diff(right, wrong, X[port])
    assert found and found.first.site == site and found.first.born


@pytest.mark.parametrize(
    ("make", "names"),
    [
        (lambda: nn.GroupNorm(2, 4), {"weight", "bias"}),
        (lambda: nn.InstanceNorm2d(4), {"weight", "bias", "running_mean", "running_var"}),
        (lambda: nn.BatchNorm1d(4), {"weight", "bias", "running_mean", "running_var"}),
        (lambda: nn.PReLU(4), {"weight"}),
        (lambda: nn.RNN(4, 3), {"weight_ih_l0", "weight_hh_l0", "bias_ih_l0", "bias_hh_l0"}),
    ],
)
def test_weights_have_torchs_names(make, names, tmp_path):
    assert set(porting.load_file(hookline.save_weights(make(), tmp_path / "w.safetensors"))) == names


def test_a_convolution_along_one_axis_is_kept_without_the_other(tmp_path):
    conv, again = (nn.Conv1d(2, 3, 4, has_bias=True, pad_mode="valid") for _ in range(2))
    path = hookline.save_weights(conv, tmp_path / "w.safetensors")
    assert porting.load_file(path)["weight"].shape == (3, 2, 4)
    hookline.load_weights(again, path)
    assert np.array_equal(again.weight.asnumpy(), conv.weight.asnumpy())


def test_weights_that_do_not_fit_are_listed_and_nothing_is_written(tmp_path):
    model = Vision()
    model.head = nn.Dense(5, 4)
    before = model.stem.weight.asnumpy().copy()
    with pytest.raises(hookline.InvalidArgument, match=r"of another shape|not placed"):
        porting.load(model, "vision", tmp_path)
    assert np.array_equal(model.stem.weight.asnumpy(), before)
