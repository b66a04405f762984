"""Pending: what a tap before the forward leaves for the tap after it."""

from __future__ import annotations

from typing import Any


class Pending:
    """Calls under way, by the identity of their kwargs.

    That dict is made anew for each call and goes from the pre-hook to the hook, so recursion,
    threads and exceptions can't mix calls up.
    """

    __slots__ = ("_entries",)

    def __init__(self) -> None:
        self._entries: dict[int, tuple[Any, Any]] = {}

    def put(self, kwargs: Any, entry: Any) -> None:
        self._entries[id(kwargs)] = kwargs, entry  # kwargs is kept, so that its id stays its own

    def take(self, kwargs: Any) -> Any:
        """The entry of the call with these kwargs; None where there is none."""
        found = self._entries.pop(id(kwargs), None)
        if found is None and self._entries:
            # Somebody's later pre-hook replaced the kwargs: the latest call under way is meant.
            found = self._entries.popitem()[1]
        return None if found is None else found[1]

    def __len__(self) -> int:
        return len(self._entries)
