"""Run histograms: how many values lie elsewhere in another run, and how many are nothing but rounding."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hookline import bins
from hookline.diffs.run_reading import Numbers
from hookline.histograms import Histograms

Array = NDArray[Any]

SMALL = 12
"""Values so many powers of two below the largest are small: which bins they are in tells nothing."""
CLEAR = 3
"""A value is more than rounding if it is so many powers of two above the step of its dtype at the largest."""


def absmax(numbers: Numbers) -> Array:
    """The largest magnitude of the finite values, over the steps; 0 where there are none."""
    return np.nan_to_num(numbers.column("absmax"), nan=0.0, posinf=np.inf)


def moved(one: Histograms, other: Histograms, largest: Array) -> Array:
    """How many values are in another bin, for each row of two sets of histograms; small ones are all in one."""
    entries = [_entries(hists, _lowest(largest, SMALL)) for hists in (one, other)]
    place = np.zeros(bins.COUNT, np.int64)
    for _, numbers, _ in entries:
        place[numbers] = 1
    size = len(one.lengths), int(place.sum())
    place = np.cumsum(place) - 1  # bins that nobody has need no room
    tables = [
        np.bincount(rows * size[1] + place[numbers], counts, size[0] * size[1]).reshape(size)
        for rows, numbers, counts in entries
    ]
    found: Array = np.abs(tables[0] - tables[1]).sum(axis=1) / 2
    has_both: Array = (one.lengths >= 0) & (other.lengths >= 0)
    return np.where(has_both, found, 0.0)


def share_of_noise(numbers: Numbers, step: float) -> Array:
    """The share of values over the steps that are not 0, and beside the largest no more than rounding."""
    if numbers.hists is None:
        return np.zeros(len(numbers.steps))
    lowest = _lowest(absmax(numbers), round(-math.log2(step)) - CLEAR)
    hists = numbers.hists
    rows = np.repeat(np.arange(len(hists.lengths)), np.maximum(hists.lengths, 0))
    size = np.abs(hists.bins.astype(np.int64) - bins.ZERO)
    noise = np.where((size > 0) & (size < lowest[rows]), hists.counts, 0)
    found: Array = np.bincount(rows, noise, len(hists.lengths)) / np.maximum(numbers.column("count"), 1.0)
    return found


def _entries(hists: Histograms, lowest: Array) -> tuple[Array, Array, Array]:
    """(row, bin, count) of all that was counted; bins of magnitudes below a row's lowest are that of zero."""
    rows = np.repeat(np.arange(len(hists.lengths)), np.maximum(hists.lengths, 0))
    numbers = hists.bins.astype(np.int64)
    near = np.abs(numbers - bins.ZERO) < lowest[rows]
    return rows, np.where(near, bins.ZERO, numbers), hists.counts


def _lowest(largest: Array, powers: int) -> Array:
    """How far from zero's bin that of a magnitude is which is so many powers of two below the largest."""
    _, exponents = np.frexp(np.where(np.isfinite(largest), largest, 0.0))
    found: Array = (exponents - 1 - powers - bins.LOWEST) * (1 << bins.MANTISSA_BITS) + 2
    return found
