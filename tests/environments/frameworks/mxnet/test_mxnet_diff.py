"""Ports of torch models to MXNet: weights carried over, recordings kept for the comparison, diffs of their own."""

import mxnet as mx
import numpy as np
import pytest
from mxnet import gluon, nd
from mxnet.gluon import nn, rnn

import hookline
from tests.environments.frameworks import porting


class Vision(gluon.Block):
    """Names of its own."""

    def __init__(self, epsilon=1e-5):
        super().__init__()
        self.stem = nn.Conv2D(4, 3, in_channels=3)
        self.bn = nn.BatchNorm(in_channels=4, epsilon=epsilon)
        self.act = nn.Activation("relu")
        self.grow = nn.Conv2DTranspose(5, 3, 2, in_channels=4)
        self.head = nn.Dense(3, in_units=5)

    def forward(self, x):
        return self.head(self.grow(self.act(self.bn(self.stem(x)))).mean((2, 3)))


class Attention(gluon.Block):
    """Two heads of four: MXNet has none of its own."""

    def __init__(self):
        super().__init__()
        self.query, self.key, self.value, self.out = (nn.Dense(8, in_units=8, flatten=False) for _ in range(4))

    def forward(self, x):
        heads = [
            part(x).reshape((0, 0, 2, 4)).transpose((0, 2, 1, 3)) for part in (self.query, self.key, self.value)
        ]
        q, k, v = (one.reshape((-1, 5, 4)) for one in heads)
        mixed = nd.batch_dot(nd.softmax(nd.batch_dot(q, k, transpose_b=True) / 2), v)
        return self.out(mixed.reshape((-1, 2, 5, 4)).transpose((0, 2, 1, 3)).reshape((0, 0, -1)))


class Text(gluon.Block):
    def __init__(self, epsilon=1e-5):
        super().__init__()
        self.tokens = nn.Embedding(11, 8)
        self.ln = nn.LayerNorm(epsilon=epsilon, in_channels=8)
        self.mixing = Attention()
        self.wide, self.act = nn.Dense(16, in_units=8, flatten=False), nn.GELU()
        self.narrow = nn.Dense(8, in_units=16, flatten=False)

    def forward(self, ids):
        x = self.tokens(ids)
        x = x + self.mixing(self.ln(x))
        return x + self.narrow(self.act(self.wide(x)))


class Sound(gluon.Block):
    def __init__(self, scale=1.0):
        super().__init__()
        self.lstm = rnn.LSTM(6, 2, layout="NTC", bidirectional=True, input_size=4)
        self.gated = rnn.GRU(5, layout="NTC", input_size=12)
        self.head = nn.Dense(3, in_units=5, flatten=False)
        self.scale = scale

    def forward(self, x):
        return self.head(self.gated(self.lstm(x)) * self.scale)


PORTS = {
    "vision": Vision,
    "text": Text,
    "sound": Sound,
    "vision-wrong": lambda: Vision(epsilon=1e-2),
    "text-wrong": lambda: Text(epsilon=1e-2),
    "sound-wrong": lambda: Sound(scale=1.01),
}
X = {name: nd.array(x) for name, x in porting.X.items()}


def ported(port, folder):
    model = PORTS[port]()
    model.initialize(mx.init.Xavier())
    porting.load(model, port.partition("-")[0], folder)
    return model


def recorded(port, folder):
    model = ported(port, folder)
    with hookline.record(model, inputs=True) as rec:
        model(X[port.partition("-")[0]])
    return rec


@pytest.mark.parametrize("port", PORTS)
def test_a_port_has_torchs_weights_and_is_kept(port, tmp_path):
    assert porting.keep(recorded(port, tmp_path), "mxnet", port).exists()


@pytest.mark.parametrize(("port", "site"), [("vision", "bn"), ("text", "ln"), ("sound", "head")])
def test_two_recordings_part_where_the_mistake_is(port, site, tmp_path):
    right, wrong = recorded(port, tmp_path), recorded(f"{port}-wrong", tmp_path)
    assert not hookline.diff(right, recorded(port, tmp_path))
    found = hookline.diff(right, wrong)
    assert found and found.first.site == site


@pytest.mark.parametrize(("port", "site"), [("vision", "bn"), ("text", "ln")])
def test_two_models_part_where_the_mistake_is(port, site, tmp_path):
    right, again, wrong = (ported(one, tmp_path) for one in (port, port, f"{port}-wrong"))
    assert not hookline.diff(right, again, X[port])
    found = hookline.diff(right, wrong, X[port])
    assert found and found.first.site == site and found.first.born


@pytest.mark.parametrize(
    ("make", "names"),
    [
        (lambda: nn.GroupNorm(2), {"weight", "bias"}),
        (lambda: nn.InstanceNorm(in_channels=4), {"weight", "bias"}),
        (lambda: nn.PReLU(), {"weight"}),
        (lambda: rnn.RNN(3, input_size=4), {"weight_ih_l0", "weight_hh_l0", "bias_ih_l0", "bias_hh_l0"}),
        (lambda: rnn.LSTMCell(3, input_size=4), {"weight_ih", "weight_hh", "bias_ih", "bias_hh"}),
    ],
)
def test_weights_have_torchs_names(make, names, tmp_path):
    block = make()
    block.initialize()
    assert set(porting.load_file(hookline.save_weights(block, tmp_path / "w.safetensors"))) == names


def test_a_kernel_with_its_channels_last_is_kept_as_torch_has_it(tmp_path):
    """MXNet computes in this layout on GPUs only; the weights have it anyway."""
    conv, plain = nn.Conv2D(4, 3, in_channels=2, layout="NHWC"), nn.Conv2D(4, 3, in_channels=2)
    for one in (conv, plain):
        one.initialize(mx.init.Xavier())
    assert conv.weight.shape == (4, 3, 3, 2)
    hookline.load_weights(plain, hookline.save_weights(conv, tmp_path / "w.safetensors"))
    assert np.array_equal(plain.weight.data().asnumpy(), np.moveaxis(conv.weight.data().asnumpy(), -1, 1))


def test_weights_without_a_shape_are_told_of(tmp_path):
    model = nn.Dense(3)
    model.initialize()
    path = hookline.save_weights(_dense(), tmp_path / "w.safetensors")
    with pytest.raises(hookline.InvalidArgument, match=r"not placed: weight.*call it once"):
        hookline.load_weights(model, path)
    model(nd.ones((1, 2)))
    hookline.load_weights(model, path)
    assert np.array_equal(model.weight.data().asnumpy(), porting.load_file(path)["weight"])


def _dense():
    made = nn.Dense(3, in_units=2)
    made.initialize(mx.init.Xavier())
    return made
