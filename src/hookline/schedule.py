"""Schedules: which steps are recorded. A schedule is any function `step -> bool`."""

from __future__ import annotations

import math
from collections.abc import Callable

from hookline.errors import InvalidArgument

Schedule = Callable[[int], bool]


def always(step: int) -> bool:
    """True on every step."""
    return True


def every(n: int, *, offset: int = 0) -> Schedule:
    """True on steps offset, offset + n, offset + 2n, ...

    >>> [step for step in range(10) if every(4, offset=1)(step)]
    [1, 5, 9]
    """
    if not isinstance(n, int) or isinstance(n, bool) or n < 1:
        raise InvalidArgument(f"every({n!r}): expected a whole number from 1 on.")
    return lambda step: step >= offset and (step - offset) % n == 0


def first(n: int) -> Schedule:
    """True on the first n steps.

    >>> [step for step in range(10) if first(3)(step)]
    [0, 1, 2]
    """
    return lambda step: step < n


def logspaced(per_decade: int = 10) -> Schedule:
    """True on about `per_decade` steps between each power of ten and the next, and on step 0.

    >>> [step for step in range(1000) if logspaced(3)(step)]
    [0, 1, 2, 4, 10, 21, 46, 100, 215, 464]
    """
    if per_decade < 1:
        raise InvalidArgument(f"logspaced({per_decade!r}): expected at least 1 step per decade.")

    def wanted(step: int) -> bool:
        if step < 1:
            return step == 0
        nearest = round(math.log10(step) * per_decade)
        return any(math.floor(10 ** (k / per_decade)) == step for k in (nearest - 1, nearest, nearest + 1))

    return wanted


def any_of(*schedules: Schedule) -> Schedule:
    """True where one of the schedules is: `any_of(first(100), every(50))`.

    >>> [step for step in range(10) if any_of(first(2), every(4))(step)]
    [0, 1, 4, 8]
    """
    return lambda step: any(schedule(step) for schedule in schedules)


def as_schedule(given: int | Schedule | None) -> Schedule:
    """A schedule from a number (every so many steps), from one, or from None (every step)."""
    if given is None:
        return always
    if callable(given):
        return given
    if isinstance(given, int):
        return always if given == 1 and not isinstance(given, bool) else every(given)
    raise InvalidArgument(
        f"every={given!r} is no schedule. Give a number of steps, or a function step -> bool such as "
        "hookline.schedule.first(100)."
    )
