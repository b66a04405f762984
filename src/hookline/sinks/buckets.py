"""Buckets: the exponent histogram of a row as counts between edges, for programs that draw such."""

from __future__ import annotations

from functools import cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hookline.bins import ZERO, edges


class Buckets(NamedTuple):
    """`counts` of values between `edges`, which rise and are one more."""

    counts: NDArray[np.int64]
    edges: NDArray[np.float64]


def buckets(hist: Any, most: int | None = None) -> Buckets | None:
    """The buckets of a histogram, empty stretches as one each; None where nothing was counted.

    Where there would be more than `most`, neighbours are put together; every value is still counted.

    >>> from hookline.lines import Stats
    >>> found = buckets(Stats.of([-1.0, 0.0, 1.0, 1.2, 2.0]).hist)
    >>> found.counts.tolist(), found.edges[[0, -2, -1]].tolist()
    ([1, 0, 1, 0, 2, 0, 1], [-1.5, 2.0, 3.0])
    """
    if hist is None or not hist.any():
        return None
    used = np.flatnonzero(hist)
    borders = np.union1d(used, used + 1)
    if most is not None and len(borders) > most + 1:
        borders = borders[np.linspace(0, len(borders) - 1, most + 1).round().astype(int)]
    upto = np.concatenate([[0], np.cumsum(hist)])
    return Buckets(np.diff(upto[borders]), _borders()[borders])


@cache
def _borders() -> NDArray[np.float64]:
    """All edges, finite and strictly rising: zero gets a bucket that has a width, and no other number in it."""
    low, high = edges()
    borders = np.concatenate([low, high[-1:]])
    smallest = float(np.nextafter(0, 1))
    borders[ZERO], borders[ZERO + 1] = -smallest, smallest
    largest = np.finfo(np.float64).max
    clipped: NDArray[np.float64] = np.clip(borders, -largest, largest)
    return clipped
