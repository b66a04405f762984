"""Registry: the probes by name, in the order in which they are made."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from hookline.diagnosis.finding import Finding
from hookline.errors import InvalidArgument, near

ORDER = ("determinism", "constant", "causality", "batch", "mask", "gradient", "state")
"""The names of all probes; what others rely on comes first."""

Look = Callable[[Any], Iterator[Finding]]
PROBES: dict[str, Look] = {}
"""What each name does: a function of a Subject that yields findings, or raises CantProbe."""


class CantProbe(Exception):
    """A property that can't be looked at on this model, with these inputs; the text says why."""


def probing(name: str) -> Callable[[Look], Look]:
    """A decorator: makes a function of a Subject the probe of that name."""
    assert name in ORDER and name not in PROBES, name

    def add(look: Look) -> Look:
        PROBES[name] = look
        return look

    return add


def chosen(only: str | Iterable[str] | None) -> list[str]:
    """The names of the probes that `only` means; all for None.

    >>> chosen("batch"), chosen(["state", "mask"])
    (['batch'], ['mask', 'state'])
    """
    asked = ORDER if only is None else (only,) if isinstance(only, str) else tuple(only)
    for name in asked:
        if name not in ORDER:
            raise InvalidArgument(f"no probe is called {name!r}.{near(name, ORDER)} There are {', '.join(ORDER)}.")
    if not asked:
        raise InvalidArgument(f"only=() asks for nothing; there are {', '.join(ORDER)}.")
    return [name for name in ORDER if name in asked]
