"""Sessions: which `with` block an event belongs to.

Several recordings and edits may be open on one model at once. A call of the model belongs to the
blocks that were opened in its own context (thread or asyncio task). A context that has opened none,
such as a worker thread of DataParallel or of a pool, belongs to all open blocks.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

_opened: ContextVar[tuple[int, ...]] = ContextVar("hookline_sessions", default=())
_numbers = itertools.count(1)

opened = _opened.get
"""The numbers of the sessions opened in the current context; read on every event."""


class Session:
    """One `with` block's claim on the events of its context.

    >>> session = Session(); session.open(); session.sees_this_context()
    True
    >>> session.close(); opened()
    ()
    """

    __slots__ = ("number",)

    def __init__(self) -> None:
        self.number = next(_numbers)

    def open(self) -> None:
        _opened.set((*_opened.get(), self.number))

    def close(self) -> None:
        # No token reset: an exit may run in another context than its enter (a generator, a callback).
        _opened.set(tuple(number for number in _opened.get() if number != self.number))

    @contextmanager
    def alone(self) -> Iterator[None]:
        """For this block, events of this context belong to no other session."""
        token = _opened.set((self.number,))
        try:
            yield
        finally:
            _opened.reset(token)

    def sees_this_context(self) -> bool:
        """Whether what happens in the current context belongs to this session."""
        mine = opened()
        return not mine or self.number in mine
