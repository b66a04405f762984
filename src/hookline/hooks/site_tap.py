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
from hookline.hooks.pending import CallsUnderWay

_NOBODYS = Label("", "", "")


class SiteTap(Tap, CallsUnderWay):
    """The tap after the forward; `entrance` gives the one before it.

    A subclass has `begin` and `end`. Calls that do not belong to its `session`, if it has one, are only counted:
    `elsewhere` is how many belonged to other blocks.
    """

    whole_calls_only = False  # it looks itself: a wrapper would count as somebody who has the output
    while_leaving = False
    """Whether it hears calls also when its session is closed, until it is taken off; see `Session`."""

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
        return None if output is GONE else self.left(module, args, kwargs, output, references)


class Entrance(Tap):
    """The tap before the forward, of a SiteTap that it does not keep alive."""

    after = False
    whole_calls_only = False  # it looks itself

    _label: Label | None = None

    def __init__(self, site: SiteTap, label: Label | None, needs: Needs, rank: Rank) -> None:
        self._site = weakref.ref(site)
        self.needs = needs
        if label is not None:
            self._label = label
        if rank is not Rank.OBSERVE:
            self.rank = rank

    @property
    def label(self) -> Label:  # type: ignore[override]  # made when asked for, which is seldom
        site = self._site()
        return self._label or (_NOBODYS if site is None else site.label)

    def __call__(self, module: Any, args: Any, kwargs: Any = GONE) -> Any:
        site = self._site()
        return None if kwargs is GONE or site is None else site.came(module, args, kwargs)
