"""Pending: what a tap before the forward leaves for the tap after it."""

from __future__ import annotations

from threading import get_ident
from typing import Any


def call_number(module: Any, args: Any) -> int:
    """A number that all taps of one call have in common, and no other call that is under way.

    Not of the arguments alone: a call without any gets the one empty tuple that there is.
    """
    return hash((id(module), id(args)))


class Pending:
    """Calls under way, by the identity of their kwargs.

    That dict is made anew for each call and goes from the pre-hook to the hook, so recursion,
    threads and exceptions can't mix calls up.
    """

    __slots__ = ("_entries",)

    def __init__(self) -> None:
        self._entries: dict[int, tuple[Any, Any, int]] = {}

    def put(self, kwargs: Any, entry: Any) -> None:
        self._entries[id(kwargs)] = kwargs, entry, get_ident()  # kwargs is kept, so that its id stays its own

    def take(self, kwargs: Any) -> Any:
        """The entry of the call with these kwargs; None where there is none."""
        found = self._entries.pop(id(kwargs), None)
        if found is None and self._entries:
            # Somebody's later pre-hook replaced the kwargs: the latest call under way in this thread is meant.
            here = get_ident()
            for key, (_, entry, thread) in reversed(list(self._entries.items())):
                if thread == here:
                    del self._entries[key]
                    return entry
        return None if found is None else found[1]

    def __len__(self) -> int:
        return len(self._entries)
