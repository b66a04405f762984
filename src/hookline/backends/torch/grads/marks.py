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
    """Whether passages of some kind are alive: each holds `alive() or made()`.

    Nothing is counted back, which an interrupt could cut short where nobody would notice.
    """

    observe: Callable[[], Any] = staticmethod(lambda: None)
    """Has backwards observed as long as somebody holds what it returns."""

    def __init__(self) -> None:
        # A reference to what is gone, and no function that returns None: it is asked on every call of a module.
        self.alive = weakref.ref(Observing(None))

    @changing
    def made(self) -> Observing:
        found = self.alive()
        if found is None:
            found = Observing(Kind.observe())
            self.alive = weakref.ref(found)
        return found


every_passage = Kind()
"""All of them, simple or not."""
looked_up = Kind()
"""Those that are not simple."""
replacing = Kind()
"""Simple ones that replace the gradient of an output."""


def is_own(leaf: Tensor) -> bool:
    """Whether `leaf` is a view that hookline made, and was not written to since."""
    node: Any = leaf.grad_fn
    return node is not None and VIEW in node.metadata


def viewed(leaf: Tensor) -> Tensor:
    """A view of all of `leaf` for a port of its own; `leaf` itself where there is no such view."""
    view = aliased(leaf)
    if view is not leaf:
        node: Any = view.grad_fn
        node.metadata[VIEW] = (
            looked_up.alive() or looked_up.made()
        )  # a backward looks after the order of sums there
    return view
