"""Marks: what hookline keeps in the metadata of nodes of autograd's graph; it dies with the graph."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

import torch

from hookline.backends.changing import changing
from hookline.backends.torch.grads.leaves import aliased

Tensor = torch.Tensor

VIEW = "hookline view"
"""Under this name it says that the node is that of a view which hookline made."""


class Observing:
    """Alive as long as there is a passage of some kind; while it is, backwards are observed."""

    __slots__ = ("__weakref__", "_observed")

    def __init__(self, observed: Any) -> None:
        self._observed = observed


class Kind:
    """Whether passages of some kind are alive, each of which holds what `held` returns.

    Nothing is counted back, which an interrupt could cut short where nobody would notice.
    """

    __slots__ = ("_observe", "alive")

    def __init__(self, observe: Callable[[], Any]) -> None:
        self._observe = observe
        self.alive: Callable[[], Observing | None] = _nobody
        """What they hold; None where there is none."""

    def held(self) -> Observing:
        return self.alive() or self._made()

    @changing
    def _made(self) -> Observing:
        found = self.alive()
        if found is None:
            found = Observing(self._observe())
            self.alive = weakref.ref(found)
        return found


def _nobody() -> None:
    return None


class Marked:
    """Which passages are alive, as far as a backward has to know."""

    def __init__(self) -> None:
        self.observed: Callable[[], Any] = _nobody
        """What any passage holds: as long as somebody does, backwards are observed."""
        self.looked_up = Kind(lambda: self.observed())
        """Passages that are not simple."""
        self.replacing = Kind(lambda: self.observed())
        """Simple ones that replace the gradient of an output."""


marked = Marked()


def is_own(leaf: Tensor) -> bool:
    """Whether `leaf` is a view that hookline made, and was not written to since."""
    node: Any = leaf.grad_fn
    return node is not None and VIEW in node.metadata


def viewed(leaf: Tensor) -> Tensor:
    """A view of all of `leaf` for a port of its own; `leaf` itself where there is no such view."""
    view = aliased(leaf)
    if view is not leaf:
        node: Any = view.grad_fn
        node.metadata[VIEW] = marked.looked_up.held()  # a backward looks after the order of sums there
    return view
