"""Marks: which nodes of autograd's graph have something of hookline's in their metadata; it dies with them."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import torch

from hookline.backends.torch.compat import node_number
from hookline.backends.torch.leaves import aliased

Tensor = torch.Tensor

VIEW = "hookline view"
"""Under this name it says that the node is that of a view which hookline made."""


class Marked:
    """The numbers of nodes that have ports of passages now alive: which nodes to ask for their metadata.

    `looked_up` counts the passages that are not simple.
    """

    def __init__(self) -> None:
        self._lock = threading.RLock()  # a passage may die while another is added
        self._numbers: dict[int, int] = {}
        self.looked_up = 0
        self.on_first: Callable[[], None] = lambda: None
        self.on_last: Callable[[], None] = lambda: None

    def __contains__(self, number: int) -> bool:
        return number in self._numbers

    def __bool__(self) -> bool:
        return bool(self._numbers)

    def add(self, numbers: list[int], *, looked_up: bool) -> None:
        with self._lock:
            if not self._numbers:
                self.on_first()
            self.looked_up += looked_up
            for number in numbers:
                self._numbers[number] = self._numbers.get(number, 0) + 1

    def remove(self, numbers: list[int], *, looked_up: bool) -> None:
        with self._lock:
            self.looked_up -= looked_up
            for number in numbers:
                left = self._numbers.pop(number) - 1
                if left:
                    self._numbers[number] = left
            if not self._numbers:
                self.on_last()


marked = Marked()


class View:
    """Marks the node of a view that a port got: a backward has to look after the order of sums there."""

    def __init__(self, node: Any) -> None:
        self._numbers = [node_number(node)]
        marked.add(self._numbers, looked_up=True)

    def __del__(self) -> None:
        marked.remove(self._numbers, looked_up=True)


def viewed(leaf: Tensor) -> Tensor:
    """A view of all of `leaf` for a port of its own; `leaf` itself where there is no such view."""
    view = aliased(leaf)
    if view is not leaf:
        node: Any = view.grad_fn
        node.metadata[VIEW] = View(node)
    return view
