"""Listened: the compiled models whose operators somebody listens to, and who that is.

Every module that is listened to gets a class of its own (classes.py), so that torch compiles the model anew, once.
"""

from __future__ import annotations

import weakref
from collections.abc import Hashable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from torch import nn

from hookline.backends.changing import changing
from hookline.backends.operators import Operator, OpListener, OpSite, Scope
from hookline.backends.protocol import Label
from hookline.backends.torch.compat import graphs_so_far
from hookline.backends.torch.compiled.classes import mark
from hookline.backends.torch.modules import walk
from hookline.errors import Unsupported

_models: weakref.WeakKeyDictionary[nn.Module, Listened] = weakref.WeakKeyDictionary()


class Subscription:
    """One listener, and the modules that it listens to."""

    def __init__(self, listener: OpListener, names: frozenset[str], label: Label) -> None:
        self.listener, self.names, self.label = listener, names, label
        self.key: Hashable = (listener.key, names)
        self._wanted: dict[OpSite, bool] = {}

    def wants(self, module: str, operator: Operator, phase: str) -> bool:
        return module in self.names and self.listener.wants(operator, phase)

    def is_told(self, step: OpSite) -> bool:
        """Whether the operator of this step is to be told now."""
        found = self._wanted.get(step)
        if found is None:
            found = self._wanted[step] = self.wants(step.module, step.operator, step.phase)
        return found and self.listener.is_mine()


class Listened:
    """A model, the names of its modules, and who listens to its operators."""

    def __init__(self, root: nn.Module, names: dict[int, str]) -> None:
        self.root, self.names = weakref.ref(root), names
        self.all: list[Subscription] = []
        self.key: Hashable = None
        self.looked: set[Hashable] = set()  # keys for which a graph was compiled
        self._scopes: tuple[Hashable, dict[tuple[str, int, str], Scope]] = (None, {})

    @changing
    def tell(self, subscription: Subscription, wanted: bool) -> None:
        """Has the model tell this one too, or no more."""
        self.all = [other for other in self.all if other is not subscription] + [subscription] * wanted
        self._mark()

    def _mark(self) -> None:
        """Gives all modules the classes that belong to who listens now."""
        root = self.root()
        if root is not None:
            self.key = ("operators", *sorted((one.key for one in self.all), key=repr)) if self.all else None
            for _, module in walk(root):
                mark(module, self.key)

    @contextmanager
    def called(self) -> Iterator[None]:
        """Around a call: Unsupported where torch ran the model without compiling it for who listens."""
        graphs = graphs_so_far()
        yield
        # With a graph more it was compiled anew, if only to find that there is nothing to compute.
        if self.key is not None and self.key not in self.looked and graphs_so_far() == graphs:
            raise Unsupported(
                backend="torch",
                feature="an op hook on this compiled model",
                why="torch did not compile it anew: its limit of recompilations is reached, the forward uses "
                "nothing of its module, or all modules are torch's own, which model.compile() runs as written",
                instead="call torch.compiler.reset() before, hook the model before its first call, or compile it "
                "by torch.compile(model)",
            )

    def scopes(self, compilation: str) -> dict[tuple[str, int, str], Scope]:
        """How far names are given in one compilation: a forward's graph has some of the backward's operators."""
        if self._scopes[0] != (compilation, self.key):
            self._scopes = (compilation, self.key), {}
        return self._scopes[1]

    def wants(self, module: str, operator: Operator, phase: str) -> bool:
        return any(one.wants(module, operator, phase) for one in self.all)

    @property
    def inputs(self) -> bool:
        """Whether somebody wants to know what goes into operators."""
        return any(one.listener.inputs for one in self.all)


def listened_models() -> Iterable[Listened]:
    """The models whose operators somebody listens to."""
    return [model for model in _models.values() if model.all]


def subscriptions(root: nn.Module) -> list[Subscription]:
    """Who listens to the operators of a model that is compiled."""
    return list(_models[root].all) if root in _models else []


@changing
def listened_model(root: nn.Module, names: dict[int, str]) -> Listened:
    """The model of which `root` is the root, with these names of its modules."""
    model = _models.get(root)
    if model is None or model.names != names:  # by another name it is part of another model
        model = _models[root] = Listened(root, names)
    return model


def told(model: Any, step: OpSite) -> list[OpListener]:
    """The listeners that are to be told of this step now."""
    return [one.listener for one in model.all if one.is_told(step)]
