"""Seed 002's helpers around a model: its very examples, and its printed table."""

import types

import pytest
import torch
from torch import nn

import hookline
from hookline import (
    dummy_eval,
    has_params,
    layer_info,
    model_sizes,
    module_summary,
    num_features_model,
    total_params,
)
from hookline.testing import untouched


def ConvLayer(ni, nf, stride=1):
    return nn.Sequential(nn.Conv2d(ni, nf, 3, stride, 1, bias=False), nn.BatchNorm2d(nf), nn.ReLU())


def net():
    return nn.Sequential(ConvLayer(3, 16), ConvLayer(16, 32, stride=2), ConvLayer(32, 32))


def test_model_sizes():
    assert model_sizes(net()) == [[1, 16, 64, 64], [1, 32, 32, 32], [1, 32, 32, 32]]
    assert model_sizes(net(), size=(32, 16))[-1] == [1, 32, 16, 8]


def test_num_features_model():
    assert num_features_model(nn.Sequential(nn.Conv2d(5, 4, 3), nn.Conv2d(4, 3, 3))) == 3
    assert num_features_model(net()) == 32
    assert num_features_model(nn.Sequential(nn.Conv2d(3, 7, 50))) == 7  # needs more than 32 x 32
    with pytest.raises(RuntimeError):
        num_features_model(nn.Sequential(nn.Conv2d(3, 4, 1), nn.Conv2d(5, 4, 1)))


def test_dummy_eval():
    model = net()
    with untouched(model):
        out = dummy_eval(model, (8, 8))
    assert out.shape == (1, 32, 4, 4) and not out.requires_grad
    with pytest.raises(hookline.InvalidArgument, match="no convolution"):
        dummy_eval(nn.Linear(3, 3))


def test_has_params():
    assert has_params(nn.Linear(3, 4))
    assert has_params(nn.LSTM(4, 5, 2))
    assert not has_params(nn.ReLU())


def test_total_params():
    assert total_params(nn.Linear(10, 32)) == (32 * 10 + 32, True)
    assert total_params(nn.Linear(10, 32, bias=False)) == (32 * 10, True)
    assert total_params(nn.BatchNorm2d(20)) == (20 * 2, True)
    assert total_params(nn.BatchNorm2d(20, affine=False)) == (0, False)
    assert total_params(nn.Conv2d(16, 32, 3)) == (16 * 32 * 3 * 3 + 32, True)
    assert total_params(nn.Conv2d(16, 32, 3, bias=False)) == (16 * 32 * 3 * 3, True)
    assert total_params(nn.LSTM(20, 10, 2)) == (4 * (20 * 10 + 10) + 3 * 4 * (10 * 10 + 10), True)
    assert total_params(nn.Linear(2, 2).requires_grad_(False)) == (6, False)


def _m():
    return nn.Sequential(nn.Linear(1, 50), nn.ReLU(), nn.BatchNorm1d(50), nn.Linear(50, 1))


def test_layer_info():
    sample_input = torch.randn((16, 1))
    learn = types.SimpleNamespace(model=_m())
    expected = [
        ("Linear", 100, True, [1, 50]),
        ("ReLU", 0, False, [1, 50]),
        ("BatchNorm1d", 100, True, [1, 50]),
        ("Linear", 51, True, [1, 1]),
    ]
    with untouched(learn.model):
        assert layer_info(learn, sample_input) == expected
    assert layer_info(_m(), sample_input) == expected


TABLE = """\
Sequential (Input shape: ['16 x 1'])
================================================================
Layer (type)         Output Shape         Param #    Trainable 
================================================================
Linear               16 x 50              100        True      
________________________________________________________________
ReLU                 16 x 50              0          False     
________________________________________________________________
BatchNorm1d          16 x 50              100        True      
________________________________________________________________
Linear               16 x 1               51         True      
________________________________________________________________

Total params: 251
Total trainable params: 251
Total non-trainable params: 0

"""


def test_module_summary_is_the_table_of_the_seed():
    found = module_summary(types.SimpleNamespace(model=_m()), torch.randn((16, 1)))
    assert found == TABLE
    assert repr(found) == TABLE  # at a prompt it shows itself


def test_module_summary_of_structures():
    class Pair(nn.Module):
        def forward(self, x):
            return x, {"more": x[:, :2]}

    model = nn.Sequential(nn.Linear(3, 4).requires_grad_(False), Pair())
    found = module_summary(model, torch.ones(8, 3))
    assert "['8 x 4', \"['8 x 2" in found and "Total non-trainable params: 16" in found
    with pytest.raises(hookline.InvalidArgument, match="needs a batch"):
        module_summary(model)
