"""Gate: between an optimizer and who hears of its steps. Closed, it lets nothing through but a count."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any


def nobody() -> None:
    """No optimizer."""


class Gate:
    """A gate for `hear_steps`; a backend that knows nothing of it leaves it open.

    While it is closed for an optimizer, its steps are counted by `count` and told to nobody. Others' are told.

    >>> class Optimizer: pass
    >>> one, counted = Optimizer(), []
    >>> gate = Gate(lambda: counted.append(1)); gate.came(one, holds_all=lambda: True)
    >>> gate.close(); gate.is_closed_for(one), gate.is_closed_for(Optimizer())
    (True, False)
    """

    def __init__(self, count: Callable[[], None]) -> None:
        self.count = count
        self.latest: Callable[[], Any] = nobody
        """The optimizer that stepped last."""
        self.holds_all: Callable[[], bool] = bool
        """Whether that one holds all parameters of the model that are trained."""
        self._only: Callable[[], Any] = nobody

    def came(self, optimizer: Any, holds_all: Callable[[], bool]) -> None:
        """This optimizer has stepped, and passes."""
        self.latest, self.holds_all = weakref.ref(optimizer), holds_all

    def close(self) -> None:
        """From now on nothing is told of the optimizer that stepped last."""
        self._only = self.latest

    def open(self) -> None:
        """Everything is told again."""
        self._only = nobody

    def is_closed_for(self, optimizer: Any) -> bool:
        """Whether steps of this one are only counted."""
        return self._only() is optimizer
