"""The modules and parameters of a model, listed without torch's generators."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn.utils import parametrizations

from hookline.backends.torch.modules import every_module, walk
from hookline.backends.torch.parameters import all_parameters, parameters_of
from hookline.testing.zoo import ZOO, Specimen


def same(model: nn.Module) -> bool:
    """Whether both ways give the very same modules and tensors, in the same order."""
    named = {
        f"{name}.{own}" if name else own: id(one)
        for name, module in walk(model)
        for own, one in module.named_parameters(recurse=False, remove_duplicate=False)
    }
    return (
        ids(every_module(model)) == ids(model.modules())
        and ids(all_parameters(model)) == ids(model.parameters())
        and {name: id(one) for name, one in parameters_of(model).items()} == named
    )


def ids(found: Iterable[object]) -> list[int]:
    return [id(one) for one in found]


@pytest.mark.parametrize("specimen", ZOO, ids=lambda specimen: specimen.name)
def test_they_are_those_that_torch_lists_for_every_model_of_the_zoo(specimen: Specimen) -> None:
    assert same(specimen.build()[0])


def shared() -> nn.Module:
    part = nn.Linear(2, 2)
    model = nn.Sequential(part, nn.ReLU(), nn.Sequential(part, nn.Linear(2, 2)))
    model[2][1].weight = part.weight
    return model


def with_gaps() -> nn.Module:
    model = nn.Sequential(nn.Linear(2, 2, bias=False), nn.BatchNorm1d(2, affine=False))
    model.register_module("nothing", None)
    model.register_parameter("none", None)
    return model


def in_a_circle() -> nn.Module:
    model = nn.Sequential(nn.Linear(2, 2))
    model.add_module("itself", model)
    return model


class Chosen(nn.Module):
    """Hands out parts that are not among its modules."""

    def __init__(self) -> None:
        super().__init__()
        self.seen = nn.Linear(2, 2)
        self.__dict__["hidden"] = nn.Linear(2, 2)

    def named_modules(self, *args: Any, **kwargs: Any) -> Iterator[tuple[str, nn.Module]]:
        yield from super().named_modules(*args, **kwargs)
        yield "hidden", self.__dict__["hidden"]


class Fewer(nn.Linear):
    """Keeps a parameter to itself."""

    def named_parameters(self, *args: Any, **kwargs: Any) -> Iterator[tuple[str, nn.Parameter]]:
        return (pair for pair in super().named_parameters(*args, **kwargs) if pair[0] != "bias")


class Own(nn.Linear):
    """Lists its parameters itself."""

    def parameters(self, recurse: bool = True) -> Iterator[nn.Parameter]:
        return iter([self.bias])


MODELS: dict[str, Callable[[], nn.Module]] = {
    "shared": shared,
    "with gaps": with_gaps,
    "in a circle": in_a_circle,
    "chosen": Chosen,
    "chosen, inside": lambda: nn.Sequential(nn.ReLU(), Chosen()),
    "fewer": lambda: Fewer(2, 2),
    "fewer, inside": lambda: nn.Sequential(Fewer(2, 2)),
    "own": lambda: Own(2, 2),
    "list": lambda: nn.ParameterList([torch.ones(2), torch.ones(3)]),
    "lazy": lambda: nn.LazyLinear(2),
    "parametrized": lambda: parametrizations.weight_norm(nn.Linear(2, 2)),
    "scripted": lambda: torch.jit.script(nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))),
    "compiled": lambda: torch.compile(nn.Sequential(nn.Linear(2, 2))),
    "parallel": lambda: nn.DataParallel(nn.Linear(2, 2)),
    "transformer": lambda: nn.TransformerEncoderLayer(4, 2, 4),
}


@pytest.mark.filterwarnings("ignore:.*torch.jit.script.*:DeprecationWarning")  # TorchScript is still in use
@pytest.mark.parametrize("build", MODELS.values(), ids=MODELS)
def test_they_are_those_that_torch_lists(build: Callable[[], nn.Module]) -> None:
    assert same(build())


def test_shared_ones_are_listed_once_and_chosen_ones_as_well() -> None:
    assert len(all_parameters(shared())) == 3
    assert len(all_parameters(Chosen())) == 4
