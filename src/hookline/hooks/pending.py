"""Pending: what a tap before the forward leaves for the tap after it."""

from __future__ import annotations

import itertools
from threading import get_ident, local
from typing import Any, NamedTuple

from hookline.backends.keywords import Kwargs, kwargs_of_call

_numbers = itertools.count()


class _Entry(NamedTuple):
    number: int
    kwargs: Kwargs  # kept, so that their identities stay their own
    value: Any
    outer: _Entry | None  # of a call with the very same kwargs, in which this one was made


class _Last(local):
    """Of one thread: the call that taps after the forward came from last."""

    call: tuple[int, ...] = ()
    taps: tuple[int, ...] = ()
    number = 0


_last = _Last()


def call_number(tap: Any, module: Any, args: Any) -> int:
    """A number that all taps after one forward have in common, and no other call ever.

    Torch tells no such number, and the arguments of the next call may lie where those of the last lay. But no
    tap comes twice in a call.
    """
    call = id(module), id(args), *map(id, args)
    if call != _last.call or id(tap) in _last.taps:
        _last.call, _last.taps, _last.number = call, (), next(_numbers) + 1
    _last.taps = *_last.taps, id(tap)
    return _last.number


class Pending:
    """Calls under way, by the identity of their kwargs and by thread.

    That dict is made anew for each call and goes from the pre-hook to the hook, so recursion, tasks,
    threads and exceptions can't mix calls up: a call that failed is finished by no other one.
    """

    __slots__ = ("_entries",)

    def __init__(self) -> None:
        self._entries: dict[tuple[int, int], _Entry] = {}

    def put(self, came: Any, kwargs: Any, entry: Any) -> None:
        """Notes the entry of a call whose kwargs were `came`; those that go on are `kwargs`."""
        key = id(kwargs), get_ident()
        self._entries[key] = _Entry(next(_numbers), kwargs_of_call(came, kwargs), entry, self._entries.get(key))

    def take(self, kwargs: Any) -> Any:
        """The entry of the call with these kwargs; None where there is none."""
        here = get_ident()
        found = self._entries.pop((id(kwargs), here), None) or self._handed_on(kwargs, here)
        if found is None:
            return None
        if found.outer is not None:
            self._entries[id(kwargs), here] = found.outer
        elif self._entries:
            self._forget_failed(found.number, here)
        return found.value

    def _handed_on(self, kwargs: Any, here: int) -> _Entry | None:
        """The entry of a call whose kwargs a later tap replaced by these."""
        for key, entry in list(self._entries.items()):
            if key[1] == here and any(stood is kwargs for stood in entry.kwargs):
                return self._entries.pop(key, None)
        return None

    def _forget_failed(self, number: int, here: int) -> None:
        """Drops what is left of calls within the one that has come to its end: none of them will."""
        for key, entry in list(self._entries.items()):
            if key[1] == here and entry.number > number:
                self._entries.pop(key, None)

    def drained(self) -> list[Any]:
        """The entries of calls that never came to their end; none is waited for any more."""
        entries, self._entries = self._entries, {}
        return [entry.value for entry in entries.values()]

    def __len__(self) -> int:
        return len(self._entries)
