"""Choosing: of rows those of some steps, and of each row one statistic."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from hookline.errors import InvalidArgument, near
from hookline.rows import HISTOGRAM, IDENTITY, RATIO, STATISTICS, Row

STATS = (*STATISTICS, HISTOGRAM, RATIO)


def bounds(steps: Any) -> tuple[int | None, int | None]:
    """The first and last step that are meant; None where there is no bound."""
    if steps is None:
        return None, None
    if isinstance(steps, range):
        return (min(steps), max(steps)) if len(steps) else (1, 0)
    pair = isinstance(steps, tuple) and len(steps) == 2
    if pair and all(end is None or isinstance(end, (int, np.integer)) for end in steps):
        first, last = steps
        return first, last
    raise InvalidArgument(f"steps={steps!r}: expected (first, last), or a range; None in it is no bound.")


def within_steps(rows: list[Row], steps: Any) -> list[Row]:
    """The rows whose steps are from `steps[0]` to `steps[1]`, or in a range.

    >>> [row["step"] for row in within_steps([{"step": n} for n in range(9)], range(2, 8, 3))]
    [2, 5]
    """
    first, last = bounds(steps)
    found = [row for row in rows if not (_is_below(row["step"], first) or _is_below(last, row["step"]))]
    return [row for row in found if row["step"] in steps] if isinstance(steps, range) else found


def _is_below(a: int | None, b: int | None) -> bool:
    return a is not None and b is not None and a < b


def with_stat(rows: list[Row], stat: str | None) -> list[Row]:
    """Each row with what it is about and one statistic, if it has that.

    >>> with_stat([{"site": "fc", "mean": 1.0, "std": 2.0}], "std")
    [{'site': 'fc', 'std': 2.0}]
    """
    if stat is None:
        return rows
    return [{name: row[name] for name in (*IDENTITY, stat) if name in row} for row in rows]


def check_stat(stat: object, more: Callable[[], Iterable[str]]) -> None:
    """InvalidArgument where rows have no statistic of that name; `more` tells what they have besides."""
    if stat in STATS:
        return
    known = [*STATS, *more()]
    if stat not in known:
        raise InvalidArgument(f"rows have no {stat!r}.{near(stat, known)} They have {', '.join(known)}.")
