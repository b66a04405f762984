"""Sessions: which `with` block an event belongs to.

Several recordings and edits may be open on one model at once. A call of the model belongs to the
blocks that were opened in its own context (thread or asyncio task). A context that has opened none,
such as a worker thread of DataParallel or of a pool, belongs to all open blocks.

A task gets a copy of the context that starts it, and a block may be left in another context than it was
opened in. So contexts share lists, and a block that ends is taken out of every list it is in.
"""

from __future__ import annotations

import itertools
import weakref
from collections.abc import Sequence
from contextvars import ContextVar

from hookline.backends.changing import changing
from hookline.backends.undoing import Undoing


class _Blocks(list[int]):
    """The numbers of the sessions that were opened in a context, or in the one it was copied from."""

    __slots__ = ("__weakref__",)
    __hash__ = object.__hash__  # type: ignore[assignment]  # a set of the very lists, whatever is in them

    def __eq__(self, other: object) -> bool:
        return self is other


_opened: ContextVar[Sequence[int]] = ContextVar("hookline_sessions", default=())
_numbers = itertools.count(1)
_everywhere: weakref.WeakSet[_Blocks] = weakref.WeakSet()

opened = _opened.get
"""The numbers of the open sessions of the current context; read on every event."""


class Session:
    """One `with` block's claim on the events of its context.

    >>> session = Session(); session.open(); session.sees_this_context()
    True
    >>> session.close(); session.sees_this_context(), list(opened())
    (False, [])
    """

    __slots__ = ("is_open", "number")

    def __init__(self) -> None:
        self.number = next(_numbers)
        self.is_open = False

    def open(self) -> None:
        self._enter(beside=True)

    def close(self) -> None:
        """Ends the claim, in whatever context; a second time does nothing."""
        self.is_open = False
        self._leave()

    @changing
    def _leave(self) -> None:
        for blocks in _everywhere:
            while self.number in blocks:
                blocks.remove(self.number)

    def open_alone(self, undoing: Undoing) -> None:
        """Until the undoing, events of this context belong to no other session."""
        undoing.noted(_opened.set, _opened.get())
        undoing.noted(self.close)
        self._enter(beside=False)

    def sees_this_context(self, while_leaving: bool = False) -> bool:
        """Whether what happens in the current context belongs to this session.

        With `while_leaving` also after it was closed: where values arrive later, those of a block's last calls
        come when its taps are taken off.
        """
        mine = opened()
        return (self.is_open or while_leaving) and (not mine or self.number in mine)

    @changing
    def _enter(self, *, beside: bool) -> None:
        blocks = _Blocks([*_opened.get(), self.number] if beside else [self.number])
        _everywhere.add(blocks)
        self.is_open = True
        _opened.set(blocks)
