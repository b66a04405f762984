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


class LookedUp:
    """Alive as long as there is something that a backward has to look up."""

    __slots__ = ("__weakref__", "_observed")

    def __init__(self, observed: Any) -> None:
        self._observed = observed


class Marked:
    """Whether nodes now alive have something of hookline's in their metadata.

    Whoever puts it there holds what `held` returns: nothing is counted back, which an interrupt could cut short
    where nobody would notice.
    """

    def __init__(self) -> None:
        self._looked_up: Callable[[], LookedUp | None] = lambda: None
        self.observed: Callable[[], Any] = lambda: None

    @property
    def looked_up(self) -> bool:
        """Whether there are passages that are not simple."""
        return self._looked_up() is not None

    def held(self, *, looked_up: bool) -> Any:
        """What to hold as long as the mark is there; then backwards are observed, too."""
        return (self._looked_up() or self._look_up()) if looked_up else self.observed()

    @changing
    def _look_up(self) -> LookedUp:
        found = self._looked_up()
        if found is None:
            found = LookedUp(self.observed())
            self._looked_up = weakref.ref(found)
        return found


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
        node.metadata[VIEW] = marked.held(looked_up=True)  # a backward looks after the order of sums there
    return view
