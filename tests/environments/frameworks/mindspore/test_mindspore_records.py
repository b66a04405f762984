"""The models of `across` in MindSpore: their records are kept for the comparison of all frameworks."""

import mindspore as ms
import pytest
from mindspore import Tensor, nn

import hookline
from tests.environments.frameworks import across


class Mlp(nn.Cell):
    def __init__(self):
        super().__init__()
        self.fc1, self.act, self.fc2 = nn.Dense(4, 8), nn.ReLU(), nn.Dense(8, 2)

    def construct(self, x):
        return self.fc2(self.act(self.fc1(x)))


class Cnn(nn.Cell):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 2, 3, pad_mode="valid", has_bias=True)
        self.act1 = nn.ReLU()
        self.conv2 = nn.Conv2d(2, 3, 3, pad_mode="valid", has_bias=True)
        self.act2 = nn.ReLU()
        self.fc = nn.Dense(3, 2)

    def construct(self, x):
        return self.fc(self.act2(self.conv2(self.act1(self.conv1(x)))).mean((2, 3)))


@pytest.mark.parametrize("name", ["cnn", "mlp"])
def test_records_are_kept(name):
    model = {"cnn": Cnn, "mlp": Mlp}[name]()
    for parameter in model.get_parameters():
        parameter.set_data(Tensor(across.WEIGHTS[name][parameter.name]))
    loss = Tensor(across.LOSS[name])
    with hookline.record(model, inputs=True, grads=True) as rec:
        ms.grad(lambda x: (model(x) * loss).sum(), 0, model.trainable_params())(Tensor(across.X[name]))
    assert rec.names == across.SITES[name]
    assert not rec.audit().silent
    assert across.keep(rec, "mindspore", name).exists()
