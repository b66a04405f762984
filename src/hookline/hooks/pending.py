"""CallsUnderWay: what a tap before the forward leaves for the tap after it."""

from __future__ import annotations

import itertools
import weakref
from typing import Any

from hookline.backends.keywords import Kwargs, here

_numbers = itertools.count()

_Entry = tuple[int, Kwargs, Any, Any]
"""The number of a call; its kwargs, kept so that their identities stay their own; what was left for its end; the
entry of a call with the very same kwargs in which this one was made, or None."""


def call_number(tap: Any, module: Any, args: Any) -> int:
    """A number that all taps after one forward have in common, and no other call ever.

    Torch tells no such number, and the arguments of the next call may lie where those of the last lay. But no
    tap comes twice in a call.
    """
    last = here.now
    # Written out for one argument, which most calls have: half the time.
    call = (id(module), id(args), id(args[0])) if len(args) == 1 else (id(module), id(args), *map(id, args))
    if call != last.call or id(tap) in last.taps:
        last.call, last.taps, last.number = call, (id(tap),), next(_numbers) + 1
    else:
        last.taps = *last.taps, id(tap)
    return last.number


class CallsUnderWay:
    """Calls under way, by the identity of their kwargs and by thread.

    That dict is made anew for each call and goes from the pre-hook to the hook, so recursion, tasks,
    threads and exceptions can't mix calls up: a call that failed is finished by no other one.
    """

    __slots__ = ("_entries",)

    def __init__(self) -> None:
        self._entries: dict[tuple[int, int], _Entry] = {}

    def put(self, came: Any, kwargs: Any, value: Any) -> None:
        """Notes what is left for the end of a call whose kwargs were `came`; those that go on are `kwargs`."""
        thread, entries = here.now, self._entries
        known = thread.latest()
        if known is None or known[-1] is not came:
            known = Kwargs((came,))
            thread.latest = weakref.ref(known)
        if kwargs is not came:
            known.append(kwargs)
        key = id(kwargs), thread.thread
        entries[key] = next(_numbers), known, value, entries.get(key)

    def take(self, kwargs: Any) -> Any:
        """What was left for the end of the call with these kwargs; None where nothing was."""
        entries, thread = self._entries, here.now.thread
        found = entries.pop((id(kwargs), thread), None) or self._handed_on(kwargs, thread)
        if found is None:
            return None
        number, _, value, outer = found
        if outer is not None:
            entries[id(kwargs), thread] = outer
        elif entries:
            self._forget_failed(number, thread)
        return value

    def _handed_on(self, kwargs: Any, thread: int) -> _Entry | None:
        """The entry of a call whose kwargs a later tap replaced by these."""
        for key, (_, known, *_) in list(self._entries.items()):
            if key[1] == thread and any(stood is kwargs for stood in known):
                return self._entries.pop(key, None)
        return None

    def _forget_failed(self, number: int, thread: int) -> None:
        """Drops what is left of calls within the one that has come to its end: none of them will."""
        for key, entry in list(self._entries.items()):
            if key[1] == thread and entry[0] > number:
                self._entries.pop(key, None)

    def drained(self) -> list[Any]:
        """The entries of calls that never came to their end; none is waited for any more."""
        if not self._entries:
            return []
        entries, self._entries = self._entries, {}
        return [value for _, _, value, _ in entries.values()]

    def __len__(self) -> int:
        return len(self._entries)
