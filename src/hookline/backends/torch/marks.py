"""Marks: which nodes of autograd's graph have something of hookline's in their metadata; it dies with them."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

import torch

from hookline.backends.changing import changing
from hookline.backends.torch.compat import node_number
from hookline.backends.torch.leaves import aliased

Tensor = torch.Tensor

VIEW = "hookline view"
"""Under this name it says that the node is that of a view which hookline made."""


class Mark:
    """Stands for something that is true as long as somebody has it."""

    __slots__ = ("__weakref__",)


class Marked:
    """The numbers of nodes that have ports of passages now alive: which nodes to ask for their metadata.

    All of it is held by the passages themselves and dies with them: nothing is counted back, which an interrupt
    could cut short where nobody would notice.
    """

    def __init__(self) -> None:
        self._numbers: weakref.WeakValueDictionary[int, Mark] = weakref.WeakValueDictionary()
        self._kinds: weakref.WeakValueDictionary[str, Mark] = weakref.WeakValueDictionary()
        self.observed: Callable[[], Any] = lambda: None

    def __contains__(self, number: int) -> bool:
        return number in self._numbers

    def __bool__(self) -> bool:
        return bool(self._numbers)

    @property
    def looked_up(self) -> bool:
        """Whether there are passages that are not simple."""
        return "looked up" in self._kinds

    @changing
    def held(self, numbers: list[int], *, looked_up: bool) -> list[Any]:
        """What to hold as long as nodes of these numbers have ports; then backwards are observed, too."""
        marks = [self._numbers.setdefault(number, Mark()) for number in numbers]
        if looked_up:
            marks.append(self._kinds.setdefault("looked up", Mark()))
        return [*marks, self.observed()]


marked = Marked()


class View:
    """Marks the node of a view that a port got: a backward has to look after the order of sums there."""

    def __init__(self, node: Any) -> None:
        self._marks = marked.held([node_number(node)], looked_up=True)


def viewed(leaf: Tensor) -> Tensor:
    """A view of all of `leaf` for a port of its own; `leaf` itself where there is no such view."""
    view = aliased(leaf)
    if view is not leaf:
        node: Any = view.grad_fn
        node.metadata[VIEW] = View(node)
    return view
