"""SiteTap: follows each call of a module from its entrance to its end.

A call is told before the forward and after it; here the two are brought together, for whoever records, watches or
replaces gradients.
"""

from __future__ import annotations

import weakref
from sys import getrefcount
from typing import Any

from hookline.backends.protocol import Label, Needs, Rank, Tap
from hookline.backends.tap import GONE
from hookline.hooks.pending import CallsUnderWay, call_number
from hookline.hooks.session import Session, opened

_NOBODYS = Label("", "", "")


class SiteTap(Tap):
    """The tap after the forward; `entrance` gives the one before it.

    A subclass has `begin` and `end`. Calls that do not belong to its session, if it has one, are only counted.
    """

    whole_calls_only = False  # it looks itself: a wrapper would count as somebody who has the output
    session: Session | None = None
    while_leaving = False
    """Whether it hears calls also when its session is closed, until it is taken off; see `Session`."""
    elsewhere = 0
    """How many calls belonged to other blocks."""

    def __init__(self) -> None:
        self.pending = CallsUnderWay()

    @property
    def under_way(self) -> int:
        """How many calls were entered and never left."""
        return len(self.pending)

    def begin(self, module: Any, args: Any, kwargs: Any) -> tuple[Any, Any] | None:
        """What `end` gets of this call, and its passage through the backend or None; None: it is not followed."""
        raise NotImplementedError

    def end(self, call: Any, passage: Any, output: Any, number: int, references: int) -> Any:
        """The output that goes on; `number` and `references` are for the passage."""
        raise NotImplementedError

    def entrance(self, label: Label | None, needs: Needs, rank: Rank = Rank.OBSERVE) -> Entrance:
        """The tap before the forward, which is to be placed as well; where `label` is None, it has this one's."""
        return Entrance(self, label, needs, rank)

    def __call__(self, module: Any, args: Any, kwargs: Any, output: Any = GONE) -> Any:
        references = getrefcount(output)
        if output is GONE or (begun := self.pending.take(kwargs)) is None:
            return None
        call, passage = begun
        number = 0 if passage is None else call_number(self, module, args)
        new = self.end(call, passage, output, number, references)
        return None if new is output else new


class Entrance(Tap):
    """The tap before the forward, of a SiteTap that it does not keep alive."""

    after = False
    whole_calls_only = False  # it looks itself

    def __init__(self, site: SiteTap, label: Label | None, needs: Needs, rank: Rank) -> None:
        self._site = weakref.ref(site)
        self._label, self.needs, self.rank = label, needs, rank

    @property
    def label(self) -> Label:  # type: ignore[override]  # made when asked for, which is seldom
        site = self._site()
        return self._label or (_NOBODYS if site is None else site.label)

    def __call__(self, module: Any, args: Any, kwargs: Any = GONE) -> Any:
        site = self._site()
        if kwargs is GONE or site is None:
            return None
        session = site.session
        if session is not None:
            # What `Session.sees_this_context` does, written out: it would be another frame on every call.
            mine = opened()
            if (mine and session.number not in mine) or not (session.is_open or site.while_leaving):
                site.elsewhere += 1
                return None
        begun = site.begin(module, args, kwargs)
        if begun is None:
            return None
        _, passage = begun
        new_args, new_kwargs = (args, kwargs) if passage is None else passage.enter(args, kwargs)
        site.pending.put(kwargs, new_kwargs, begun)
        return None if new_args is args and new_kwargs is kwargs else (new_args, new_kwargs)
