"""Thread facts: what is known of threads where `_simple.c`, which has the same types, was not compiled."""

from __future__ import annotations


class Several:
    """Whether calls come from several threads: the base of `threads.Threads`."""

    several = False


class Here:
    """What a thread knows of its calls: `threads.py` says what each means."""

    __slots__ = ("call", "group", "handed_on", "is_main", "known", "looked_up", "looking", "marked", "span")

    def __init__(self) -> None:
        self.call = self.group = self.looked_up = self.looking = self.marked = 0
        self.is_main = False
        self.span = 0, 0
        self.known: tuple[int, ...] = ()
        self.handed_on: tuple[int, int, int] | None = None
