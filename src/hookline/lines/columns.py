"""Columns: the words of many reductions to the statistics that rows have, all at once."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hookline import bins
from hookline.histograms import Histograms
from hookline.lines.kernel import active
from hookline.rows import COUNTS, FLOATS, HEADER

Numbers = NDArray[Any]
DOUBLES = 4
"""So many words of a header are floats, the others whole numbers; see `hookline.rows.HEAD`."""


class Moments(NamedTuple):
    """What a reduction tells of a tensor, of many at once or of one."""

    mean: Any
    m2: Any
    min: Any
    max: Any
    finite: Any
    zeros: Any
    near_zero: Any
    nan: Any
    inf: Any


def moments_of(words: NDArray[np.int64]) -> Moments:
    """The headers of reductions, a line of words for each."""
    doubles = words[:, :DOUBLES].copy().view(np.float64)
    return Moments(*doubles.T, *words[:, DOUBLES:HEADER].T)


def statistics_of(moments: Moments, sumsq: Any) -> dict[str, Numbers]:
    """The statistics of a row by their names; `sumsq` is the sum of the squares of the finite values.

    `std` is the sample standard deviation, NaN for fewer than two finite values as in torch. Without any finite
    value, mean to l2 are NaN; `near_zero`, a share of all values, is NaN for none.
    """
    mean, m2, low, high, finite, zeros, near_zero, nan, inf = moments
    count = finite + nan + inf
    some = np.greater(finite, 0)
    with np.errstate(all="ignore"):  # of values that the masks leave out
        return {
            "count": count,
            "mean": np.where(some, mean, np.nan),
            "std": np.where(np.greater(finite, 1), np.sqrt(np.divide(m2, finite - 1)), np.nan),
            "min": np.where(some, low, np.nan),
            "max": np.where(some, high, np.nan),
            "absmax": np.where(some, np.maximum(np.negative(low), high), np.nan),
            "l2": np.where(some, np.sqrt(sumsq), np.nan),
            "zeros": zeros,
            "near_zero": np.where(np.greater(count, 0), np.divide(near_zero, count), np.nan),
            "nan": nan,
            "inf": inf,
        }


def columns_of(words: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """The whole numbers and the floats of rows, as `hookline.rows.Rows` has them."""
    moments = moments_of(words)
    with np.errstate(all="ignore"):
        sumsq = moments.m2 + moments.finite * (moments.mean * moments.mean)  # nothing cancels: both are positive
    found = statistics_of(moments, sumsq)
    return np.stack([found[name] for name in COUNTS]), np.stack([found[name] for name in FLOATS])


def norms_of(words: NDArray[np.int64]) -> NDArray[np.float64]:
    """The 2-norm of each tensor, with NaN and Inf among its values: NaN, or Inf, where there are such."""
    moments = moments_of(words)
    with np.errstate(all="ignore"):
        norms = np.sqrt(moments.m2 + moments.finite * (moments.mean * moments.mean))
    found: NDArray[np.float64] = np.where(moments.nan > 0, np.nan, np.where(moments.inf > 0, np.inf, norms))
    return found


def histograms_of(words: NDArray[np.int64]) -> Histograms:
    """The histograms of reductions, a line of words for each; none where there is no room for them."""
    lines, width = words.shape
    if width == HEADER:
        return Histograms.none(lines)
    if (kernel := active()) is not None and words.flags.c_contiguous:
        return kernel.histograms_of(words)
    at = np.flatnonzero(words != 0)  # twice as fast as without the comparison
    line, word = np.divmod(at, width)
    counted = word >= HEADER
    lengths = np.bincount(line[counted], minlength=lines)
    which = (word[counted] - HEADER).astype(np.uint16)
    return Histograms(lengths, which, words.reshape(-1)[at[counted]], bins.COUNT)
