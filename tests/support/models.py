"""Small models that several tests use."""

from collections import OrderedDict

import torch
from torch import nn


def nested():
    """Two linear layers, one of them in a container; equal each time."""
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(2, 2), nn.ReLU(), nn.Sequential(nn.Linear(2, 2)))


class Calls(nn.Module):
    """A module whose forward is the function that it was given."""

    def __init__(self, fn):
        super().__init__()
        self.fn = fn

    def forward(self, *args, **kwargs):
        return self.fn(*args, **kwargs)


class OwnSequential(nn.Sequential):
    """Not torch's own class, whose forward torch.compile runs as written."""

    def forward(self, x):
        return super().forward(x)


class Refusing(OrderedDict):
    """In the place of a module's hooks: raises an error where one is added."""

    def __init__(self, error):
        super().__init__()
        self.error = error

    def __setitem__(self, number, hook):
        raise self.error


def taking_no_hook(module, error):
    """The module, on which no hook can be placed: whoever tries gets the error."""
    module._forward_hooks, module._forward_pre_hooks = Refusing(error), Refusing(error)
    return module
