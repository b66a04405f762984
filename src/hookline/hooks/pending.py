"""Pending: the calls of one site that are under way, between a tap before the forward and the tap after it.

`backends/_under_way.c` does the same; what is here serves where no compiler was.
"""

from __future__ import annotations

import itertools
import weakref
from typing import TYPE_CHECKING, Any, Self

from hookline.backends.keywords import HAS_C, Kwargs, here
from hookline.hooks.session import Session, opened

_numbers = itertools.count()

_Entry = tuple[int, Kwargs, Any, Any]
"""The number of a call; its kwargs, kept so that their identities stay their own; what was left for its end; the
entry of a call with the very same kwargs in which this one was made, or None."""


def call_number_by_python(tap: Any, module: Any, args: Any) -> int:
    """A number that all taps after one forward have in common, and no other call ever.

    Torch tells no such number, and the arguments of the next call may lie where those of the last lay. But no
    tap comes twice in a call.
    """
    last = here.now
    call = (id(module), id(args), *map(id, args))
    if call != last.call or id(tap) in last.taps:
        last.call, last.taps, last.number = call, (id(tap),), next(_numbers) + 1
    else:
        last.taps = *last.taps, id(tap)
    return last.number


class CallsUnderWayByPython:
    """Calls under way, by the identity of their kwargs and by thread.

    That dict is made anew for each call and goes from the pre-hook to the hook, so recursion, tasks,
    threads and exceptions can't mix calls up: a call that failed is finished by no other one.

    Who follows calls is one of these, with `begin`, `end` and `while_leaving`: see `SiteTap`.
    """

    session: Session | None = None
    elsewhere = 0

    _entries: dict[tuple[int, int], _Entry]

    def __new__(cls, *told: Any) -> Self:  # as in C: a subclass need not call any __init__
        self = super().__new__(cls)
        self._entries = {}
        return self

    @property
    def under_way(self) -> int:
        """How many calls were entered and never left."""
        return len(self._entries)

    def came(self, module: Any, args: Any, kwargs: Any) -> Any:
        """What the tap before the forward answers: a pair of other arguments, or None."""
        follower: Any = self
        session = self.session
        if session is not None:
            mine = opened()
            if (mine and session.number not in mine) or not (session.is_open or follower.while_leaving):
                self.elsewhere += 1
                return None
        begun = follower.begin(module, args, kwargs)
        if begun is None:
            return None
        _, passage = begun
        new_args, new_kwargs = (args, kwargs) if passage is None else passage.enter(args, kwargs)
        self.put(kwargs, new_kwargs, begun)
        return None if new_args is args and new_kwargs is kwargs else (new_args, new_kwargs)

    def left(self, module: Any, args: Any, kwargs: Any, output: Any, references: int) -> Any:
        """What the tap after the forward answers: another output, or None."""
        begun = self.take(kwargs)
        if begun is None:
            return None
        follower: Any = self
        call, passage = begun
        number = 0 if passage is None else call_number_by_python(self, module, args)
        new = follower.end(call, passage, output, number, references)
        return None if new is output else new

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
        """What was left of calls that never came to their end; none is waited for any more."""
        entries, self._entries = self._entries, {}
        return [value for _, _, value, _ in entries.values()]


if TYPE_CHECKING or HAS_C:
    from hookline.backends._under_way import CallsUnderWay as CallsUnderWay
    from hookline.backends._under_way import bind
    from hookline.backends._under_way import call_number as call_number

    bind(opened)
else:
    CallsUnderWay, call_number = CallsUnderWayByPython, call_number_by_python
