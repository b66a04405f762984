"""Weights: a parameter or buffer whose own numbers are kept aside while it holds others.

What holds for every framework: its own numbers are kept before others are put in their place, each step may be
cut short by an interrupt, and restoring goes on where it was cut.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from hookline.backends.nouns import Tensor


class HeldWeight(Protocol):
    """One parameter or buffer of a model, under all its names, that can hold other numbers for a while."""

    def objects(self) -> list[Any]:
        """The tensors that are this weight; more than one where moving the model made new ones."""

    def own(self) -> Any:
        """Its own numbers, the same object each time as long as the model is not moved or converted."""

    def misfit(self, data: Any) -> str:
        """Why it can't hold `data`, which has its shape and dtype; empty if it can."""

    def put(self, data: Any) -> None:
        """Has it hold `data` in place of its own numbers."""

    def restore(self) -> None:
        """Has it hold its own numbers again; a second time does nothing."""

    def release(self) -> None:
        """After `restore`: keeps nothing of its numbers."""

    def remark(self) -> str:
        """What a user should know of the time in which it held other numbers; empty if nothing."""


class PlainWeight:
    """A weight that is read by one function and written by another, which is all that most frameworks need.

    >>> memory = {"w": 1}
    >>> weight = PlainWeight("w", memory.get, memory.__setitem__)
    >>> weight.put(weight.own() + 4); memory
    {'w': 5}
    >>> weight.restore(); memory["w"] = 7; weight.restore(); memory
    {'w': 7}
    >>> weight.release(); weight.own()
    7
    """

    def __init__(self, tensor: Tensor, read: Callable[[Any], Any], write: Callable[[Any, Any], Any]) -> None:
        self._tensor, self._read, self._write = tensor, read, write
        self._found: tuple[Any] | None = None
        self._holds = False

    def objects(self) -> list[Any]:
        return [self._tensor]

    def own(self) -> Any:
        if self._found is None:
            self._found = (self._read(self._tensor),)
        return self._found[0]

    def misfit(self, data: Any) -> str:
        return ""

    def put(self, data: Any) -> None:
        self.own()
        self._holds = True  # before it is true: what is cut short from here on is restored
        self._write(self._tensor, data)

    def restore(self) -> None:
        if self._holds and self._found is not None:
            self._write(self._tensor, self._found[0])
        self._holds = False

    def release(self) -> None:
        self._found = None

    def remark(self) -> str:
        return ""
