"""Case: two models, their inputs, and what is to be found about them, told by who wrote them."""

from __future__ import annotations

import copy
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from importlib import import_module
from pathlib import Path
from typing import Any

import torch
from torch import nn

SETS = {"known": "cases", "unseen": "unseen"}
"""The sets and their folders. Nobody looks at the second while `hookline.diff` is written."""
FORWARD = frozenset({"output"})
BACKWARD = frozenset({"grad_output", "grad_input", "param_grad"})


@dataclass(frozen=True)
class Case:
    """A reference `a`, its port `b`, and where they part; without `sites` they are equal within rounding.

    `sites` are A's names of the modules at which the error may be said to be born, "" is the model itself.
    `kinds` are what may be named there, `causes` the words of docs/diff.md that are right. `inputs` is a tensor, a
    tuple of positional or a dict of keyword arguments. `inputs_b` are B's where it gets others: then the error
    is not born in a module. With a `loss`, gradients are compared too. `renamed` is the map from A's names to B's.
    """

    a: nn.Module
    b: nn.Module
    inputs: Any
    sites: Collection[str] = ()
    causes: Collection[str] = ()
    kinds: Collection[str] = FORWARD
    inputs_b: Any = None
    loss: Callable[[Any], torch.Tensor] | None = None
    renamed: Mapping[str, str] | None = None
    name: str = ""
    family: str = ""
    about: str = ""
    set: str = ""

    @property
    def equal(self) -> bool:
        return not self.sites

    @property
    def is_born(self) -> bool:
        """Whether a module makes the error, not what B is handed."""
        return self.inputs_b is None

    @property
    def pairs(self) -> tuple[tuple[nn.Module, Any], tuple[nn.Module, Any]]:
        """(model, inputs) of A and of B; the inputs are not shared, since a forward may change them."""
        given = self.inputs if self.inputs_b is None else self.inputs_b
        return (self.a, copy.deepcopy(self.inputs)), (self.b, copy.deepcopy(given))


@dataclass(frozen=True)
class Recipe:
    """A case that is not built yet."""

    name: str
    family: str
    about: str
    set: str
    equal: bool
    build: Callable[[], Case]

    def case(self) -> Case:
        """The case, with the same weights and inputs each time."""
        with torch.random.fork_rng():
            torch.manual_seed(0)
            built = self.build()
        named = replace(built, name=self.name, family=self.family, about=self.about, set=self.set)
        if named.equal != self.equal:
            raise ValueError(f"{self.name}: expected sites in a broken case and none in an equal one")
        return named


_known: list[Recipe] = []
Builder = Callable[[], Case]


def broken(family: str) -> Callable[[Builder], Builder]:
    """Makes a function that returns a case known under its name, with its docstring as what is wrong in B."""
    return lambda build: _know(build, family, equal=False)


def equal(family: str) -> Callable[[Builder], Builder]:
    """The same for two models that are equal within rounding; the docstring says what is different in B."""
    return lambda build: _know(build, family, equal=True)


def _know(build: Builder, family: str, equal: bool) -> Builder:
    name = build.__name__
    if any(one.name == name for one in _known):
        raise ValueError(f"there are two cases {name!r}")
    folder = build.__module__.split(".")[2]
    which = next(key for key, value in SETS.items() if value == folder)
    about = " ".join((build.__doc__ or "").split()).rstrip(".")
    _known.append(Recipe(name, family, about, which, equal, build))
    return build


def read_recipes(sets: Sequence[str] = tuple(SETS), only: Sequence[str] = ()) -> list[Recipe]:
    """The recipes of these sets; those whose name fits one of the globs `only`, if there are any."""
    for folder in SETS.values():
        for path in sorted((Path(__file__).parent / folder).glob("[!_]*.py")):
            import_module(f"bench.diff.{folder}.{path.stem}")
    found = [one for one in _known if one.set in sets]
    return [one for one in found if not only or any(fnmatchcase(one.name, glob) for glob in only)]
