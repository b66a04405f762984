"""Births: which node's backward made a node, for second derivatives."""

from __future__ import annotations

from bisect import bisect_right
from threading import local

from hookline.backends.torch.compat import sequence_number

LIMIT = 2**18
"""Births that are kept. Older ones go: their graphs are long gone in all but the oddest loops."""


class Births(local):
    """Of nodes that a backward made (create_graph=True): the number of the node whose backward made them.

    So a second derivative of a module's own operations counts as the module's own.
    """

    def __init__(self) -> None:
        self._numbers: list[int] = []
        self._parents: list[int | None] = []

    def __bool__(self) -> bool:
        return bool(self._numbers)

    def mark(self, parent: int | None) -> None:
        """Nodes that are made from now on are of this parent; None: of nobody but themselves."""
        number = sequence_number()
        if self._numbers and self._numbers[-1] == number:
            self._parents[-1] = parent
            return
        self._numbers.append(number)
        self._parents.append(parent)
        if len(self._numbers) > LIMIT:
            del self._numbers[: LIMIT // 2], self._parents[: LIMIT // 2]

    def of(self, number: int) -> int:
        """The number that decides to whose span a node belongs."""
        index = bisect_right(self._numbers, number) - 1
        parent = self._parents[index] if index >= 0 else None
        return number if parent is None else parent


births = Births()
