"""Pictures: the two values of a place as small arrays: numbers about them, histograms, and maps of cells.

A map is a tensor in two dimensions, in cells of some numbers each. Nothing that matters is lost by that: a cell of
the difference shows the largest one in it, so that one wrong number of a million is still seen.
"""

from __future__ import annotations

import base64
import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hookline.diffs.found import Arrays, SiteDiff
from hookline.diffs.measures import real

Values = NDArray[Any]

BINS = 48
SAMPLED = 20_000
"""The range of a histogram is found from so many numbers of a value."""
MARGIN = 0.25
"""It is that of 99 % of the numbers, with so much of it at either side; the bins at the ends have the rest."""
SAME, SAME_BAD, LOWEST, HIGHEST, ONE_INF, ONE_NAN = 0, 1, 2, 61, 254, 255
"""What a cell of the difference says: equal; equal, with NaN or Inf on both sides; from DECADES below the largest
difference up to it; Inf on one side only; NaN on one side only. A higher one hides a lower one."""
DECADES = 6
MIDDLE, MINUS_INF, PLUS_INF, HAS_NAN = 60, 253, 254, 255
"""What a cell of a value says: 0 to 120 are from minus the scale to the scale, MIDDLE is zero."""
OBLONG = 8
"""A split of the dimensions that is longer than this many times its width is no picture."""


def picture(place: SiteDiff, arrays: Arrays, side: int) -> dict[str, Any]:
    """What a report shows of a place's values; maps have at most `side` cells each way.

    >>> values = np.zeros((4, 6), np.float32), np.eye(4, 6, dtype=np.float32)
    >>> shown = picture(SiteDiff("fc"), values, 64)
    >>> shown["difference"]["rows"], shown["difference"]["columns"], shown["difference"]["high"]
    (4, 6, 1.0)
    """
    (shape, other), (a, b) = ([_shape(values) for values in arrays], [real(values) for values in arrays])
    found: dict[str, Any] = {
        "shapes": [list(shape), list(other)],
        "numbers": [numbers(a), numbers(b)],
        "histograms": histograms(a, b),
    }
    if shape == other and a.size:
        rows, columns = sheet(shape)
        flat_a, flat_b = a.reshape(rows, columns), b.reshape(rows, columns)
        scale = max(
            (abs(one) for stats in found["numbers"] for one in (stats["min"], stats["max"]) if one), default=0.0
        )
        found["difference"] = difference(flat_a, flat_b, side)
        found["values"] = [value_map(flat, scale, side // 2) for flat in (flat_a, flat_b)]
        found["largest"] = [_at(values, place.measure.index) for values in arrays]
    return found


def numbers(values: Values) -> dict[str, Any]:
    """How many there are, and mean to norm of the finite ones; None where there are none."""
    kept = _finite(values)
    nan = int(np.isnan(values).sum()) if kept is not values else 0
    found: dict[str, Any] = {"count": values.size, "nan": nan, "inf": values.size - kept.size - nan}
    if not kept.size:
        return {**found, **dict.fromkeys(("mean", "std", "min", "max", "norm"))}
    return {
        **found,
        "mean": float(kept.mean(dtype=np.float64)),
        "std": float(kept.std(dtype=np.float64)),
        "min": float(kept.min()),
        "max": float(kept.max()),
        "norm": math.sqrt(float(np.square(kept, dtype=np.float64).sum())),
    }


def histograms(a: Values, b: Values) -> dict[str, Any] | None:
    """Both over the same bins, of the finite values; the bins at the ends have what lies beyond them too."""
    kept = [_finite(values) for values in (a, b)]
    some = [values for values in kept if values.size]
    if not some:
        return None
    lowest, highest = min(float(one.min()) for one in some), max(float(one.max()) for one in some)
    ends = [np.percentile(one[:: max(1, one.size // SAMPLED)], (0.5, 99.5)) for one in some]
    first, last = min(float(one[0]) for one in ends), max(float(one[1]) for one in ends)
    room = MARGIN * (last - first)
    low, high = (max(lowest, first - room), min(highest, last + room)) if room else (lowest, highest)
    if not low < high:
        low, high = low - (abs(low) or 1.0) / 2, low + (abs(low) or 1.0) / 2
    counts = [np.histogram(np.clip(one, low, high), BINS, (low, high))[0].tolist() for one in kept]
    return {"low": low, "high": high, "beyond": [lowest < low, highest > high], "counts": counts}


def sheet(shape: tuple[int, ...]) -> tuple[int, int]:
    """(rows, columns) of a tensor laid out flat: split between two of its dimensions, nearest to a square.

    Where every split is a strip, as of a vector, its numbers fill lines one after the other.

    >>> sheet((2, 16, 64)), sheet((2, 64, 8, 8)), sheet((768,)), sheet(())
    ((32, 64), (128, 64), (24, 32), (1, 1))
    """
    size = math.prod(shape)
    splits = [(math.prod(shape[:at]), math.prod(shape[at:])) for at in range(len(shape) + 1)]
    rows, columns = min(splits, key=_oblong)
    if _oblong((rows, columns)) > OBLONG:
        rows = next(each for each in range(math.isqrt(size), 0, -1) if size % each == 0)
        columns = size // rows
    return rows, columns


def difference(a: Values, b: Values, side: int) -> dict[str, Any]:
    """A map of |a - b|; each cell has its largest, as a step of a logarithmic scale that ends at `high`.

    `odd` is the place of the first number that is NaN or Inf on one side only.
    """
    with np.errstate(all="ignore"):
        apart = np.abs(a - b)
    marks: list[tuple[int, Values]] = []
    odd: int | None = None
    if not math.isfinite(float(apart.max())):
        finite = np.isfinite(apart)
        alike = (a == b) | (np.isnan(a) & np.isnan(b))
        alone = ~finite & ~alike
        marks = [(SAME_BAD, alike & ~finite), (ONE_INF, alone), (ONE_NAN, alone & (np.isnan(a) | np.isnan(b)))]
        odd = int(alone.argmax()) if alone.any() else None
        apart[~finite] = 0
    largest = pooled(np.maximum, apart, side).astype(np.float64)
    high = float(largest.max())
    cells = np.full(largest.shape, SAME, np.uint8)
    there = largest > 0
    share = np.clip(1 + np.log10(largest[there] / high) / DECADES, 0, 1)
    cells[there] = LOWEST + np.rint(share * (HIGHEST - LOWEST)).astype(np.uint8)
    for code, mask in marks:
        cells = np.maximum(cells, pooled(np.logical_or, mask, side) * np.uint8(code))
    counts = {code: int(mask.sum()) for code, mask in marks}
    nan = counts.get(ONE_NAN, 0)
    return {
        **_map(a.shape, cells),
        "high": high,
        "odd": odd,
        "one_nan": nan,
        "one_inf": counts.get(ONE_INF, 0) - nan,
        "same_bad": counts.get(SAME_BAD, 0),
    }


def value_map(values: Values, scale: float, side: int) -> dict[str, Any]:
    """A map of the values themselves; of a cell, the one that is the farthest from zero."""
    top, foot = pooled(np.maximum, values, side), pooled(np.minimum, values, side)
    is_tame = bool(np.isfinite(top).all() and np.isfinite(foot).all())
    if not is_tame:
        tame = np.where(np.isfinite(values), values, 0)
        top, foot = pooled(np.maximum, tame, side), pooled(np.minimum, tame, side)
    far = np.where(top > -foot, top, foot).astype(np.float64)
    cells = np.clip(np.rint(MIDDLE + MIDDLE * far / (scale or 1.0)), 0, 2 * MIDDLE).astype(np.uint8)
    if not is_tame:
        for code, mask in (
            (MINUS_INF, values == -np.inf),
            (PLUS_INF, values == np.inf),
            (HAS_NAN, np.isnan(values)),
        ):
            cells = np.maximum(cells, pooled(np.logical_or, mask, side) * np.uint8(code))
    return {**_map(values.shape, cells), "high": scale}


def pooled(reduce: np.ufunc, values: Values, side: int) -> Values:
    """At most `side` cells each way, each of which is what `reduce` makes of its numbers.

    >>> pooled(np.maximum, np.arange(12.0).reshape(2, 6), 3).tolist()
    [[1.0, 3.0, 5.0], [7.0, 9.0, 11.0]]
    """
    for axis in (0, 1):
        length = values.shape[axis]
        if length > side:
            values = reduce.reduceat(values, np.arange(side) * length // side, axis=axis)
    return values


def _finite(values: Values) -> Values:
    """The finite ones of a flat array; the array itself where all are."""
    if not values.size or (math.isfinite(float(values.min())) and math.isfinite(float(values.max()))):
        return values
    return values[np.isfinite(values)]


def _map(shape: tuple[int, ...], cells: Values) -> dict[str, Any]:
    return {
        "rows": shape[0],
        "columns": shape[1],
        "down": cells.shape[0],
        "across": cells.shape[1],
        "cells": base64.b64encode(np.ascontiguousarray(cells).tobytes()).decode(),
    }


def _oblong(split: tuple[int, int]) -> float:
    return max(split) / max(min(split), 1)


def _shape(values: Values) -> tuple[int, ...]:
    """The shape of a tensor as it is shown: the two parts of complex numbers stand side by side."""
    return (*values.shape, 2) if values.dtype.kind == "c" else values.shape


def _at(values: Values, index: tuple[int, ...]) -> float | str | None:
    """The number at a place, as JSON has it; None where there is no such place."""
    if len(index) != values.ndim or any(not 0 <= at < most for at, most in zip(index, values.shape, strict=True)):
        return None
    value = values[index]
    return float(value) if values.dtype.kind != "c" and math.isfinite(float(value)) else str(value)
