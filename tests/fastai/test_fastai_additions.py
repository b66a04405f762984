"""What fastai 2.8 has beyond the seed, where it only adds: include_paramless, the fifth entry of layer_info."""

import types

import pytest
import torch
from torch import nn

from hookline import ActivationStats, HookCallback, layer_info
from hookline.fastai.callback import layers_of


class Scaled(nn.Module):
    def __init__(self):
        super().__init__()
        self.scale, self.act = nn.Parameter(torch.ones(4)), nn.Tanh()

    def forward(self, x):
        return self.act(x * self.scale)


def net():
    return nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Sequential(Scaled(), nn.Identity()), nn.Linear(4, 1))


def kinds(modules):
    return [type(module).__name__ for module in modules]


def test_modules_without_parameters_are_taken_in():
    model = net()
    assert kinds(layers_of(model)) == ["Linear", "Scaled", "Linear"]
    every = layers_of(model, include_paramless=True)
    assert kinds(every) == ["Linear", "ReLU", "Scaled", "Tanh", "Identity", "Linear"]


def test_a_shared_module_is_taken_once():
    act = nn.ReLU()
    assert layers_of(nn.Sequential(act, nn.Sequential(act)), include_paramless=True) == [act]


@pytest.mark.parametrize("include", [False, True])
def test_the_callbacks_take_it_by_name(include):
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    shapes = HookCallback(hook=lambda m, i, o: tuple(o.shape), include_paramless=include)
    stats = ActivationStats(with_hist=True, include_paramless=include)
    with shapes.attach(model), stats.attach(model):
        model(torch.ones(2, 3)).sum().backward()
        optimizer.step()
    assert len(stats.stats[0]) == len(shapes.hooks.stored) == (6 if include else 3)
    assert stats.include_paramless is include
    if include:
        relu = stats.stats[0][1]
        assert relu["mean"] >= 0 and stats.hist(1).shape == (40, 1)


def test_it_stands_where_fastai_has_it():
    callback = HookCallback(None, None, True, True, True, True, True, hook=lambda m, i, o: None)
    assert callback.include_paramless is True


def test_given_modules_are_taken_as_they_are():
    model = net()
    stats = ActivationStats(modules=[model[1]], include_paramless=False)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with stats.attach(model):
        model(torch.ones(2, 3)).sum().backward()
        optimizer.step()
    assert len(stats.stats[0]) == 1


def test_layer_info_with_a_fifth_entry():
    model = nn.Sequential(
        nn.Conv2d(3, 3, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(48, 48)
    )
    x = torch.randn(8, 3, 8, 8)
    plain, with_same = layer_info(model, x), layer_info(types.SimpleNamespace(model=model), x, same=True)
    assert [info[:4] for info in with_same] == plain and all(len(info) == 4 for info in plain)
    assert [info[4] for info in with_same] == [True, True, False, False, True]


def test_layer_info_of_layers_that_have_no_single_tensor():
    class Pair(nn.Module):
        def forward(self, x):
            return x, x

    class Nothing(nn.Module):
        def forward(self, pair=None):
            return pair[0]

    assert [info[4] for info in layer_info(nn.Sequential(Pair(), Nothing()), torch.ones(2, 3), same=True)] == [
        False,
        False,
    ]
