"""Measures: what rules compute of a series. Its size, what it is now, and since when something holds."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
Stats = Mapping[str, Array]

RECENT = 5
"""So many records are "now": one odd batch is no finding."""


def rms(stats: Stats) -> Array:
    """The root of the mean square, over the steps; NaN where no value is finite."""
    finite = stats["count"] - stats["nan"] - stats["inf"]
    found: Array = np.where(finite > 0, stats["l2"], np.nan) / np.sqrt(np.maximum(finite, 1))
    return found


def zeros_share(stats: Stats) -> Array:
    """The share of values that are zero, over the steps."""
    found: Array = stats["zeros"] / np.maximum(stats["count"], 1)
    return found


def bad_counts(stats: Stats) -> Array:
    """How many values are NaN or Inf, over the steps."""
    found: Array = stats["nan"] + stats["inf"]
    return found


def median(values: Array) -> float:
    """The median of what is no NaN; NaN where nothing is.

    >>> median(np.asarray([1.0, float("nan"), 3.0]))
    2.0
    """
    some = values[~np.isnan(values)]
    return float(np.median(some)) if len(some) else float("nan")


def recent(values: Array) -> float:
    """The median of the last records."""
    return median(values[-RECENT:])


def early(values: Array) -> float:
    """The median of the first tenth of the records, of RECENT at least."""
    return median(values[: max(RECENT, len(values) // 10)])


def spread(values: Array) -> float:
    """How far values are from their median, as a standard deviation that a few odd ones do not change.

    >>> round(spread(np.asarray([1.0, 2.0, 3.0, 4.0, 1000.0])), 2)
    1.48
    """
    some = values[np.isfinite(values)]
    return 1.4826 * median(np.abs(some - median(some)))


def since(holds: Array, share: float = 0.9) -> int | None:
    """The first record from which on something holds nearly always until the end; None where it does not hold now.

    >>> since(np.asarray([False, True, False, False, True, True, True, True, True]))
    4
    >>> since(np.asarray([True, False]))
    """
    holds = np.asarray(holds, bool)
    if not len(holds) or not holds[-min(RECENT, len(holds)) :].all():
        return None
    kept = np.cumsum(holds[::-1])[::-1] / np.arange(len(holds), 0, -1)
    return int(np.flatnonzero(holds & (kept >= share))[0])


def trend(values: Array) -> float:
    """Spearman's rank correlation of values with their order, from -1 (they fall) to 1; 0 of fewer than three.

    >>> trend(np.asarray([5.0, 4.0, 3.5, 1.0])), trend(np.asarray([1.0, 2.0]))
    (-1.0, 0.0)
    """
    values = values[np.isfinite(values)]
    if len(values) < 3 or values.min() == values.max():
        return 0.0
    _, places, counts = np.unique(values, return_inverse=True, return_counts=True)
    ranks = (np.cumsum(counts) - (counts - 1) / 2)[places]  # equal values share their mean rank
    return float(np.corrcoef(ranks, np.arange(len(values)))[0, 1])
