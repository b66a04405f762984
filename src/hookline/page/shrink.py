"""Shrink: many steps to as many points as a screen shows, with every spike still there."""

from __future__ import annotations

from typing import Any

import numpy as np


def axis(steps: Any, points: int) -> tuple[Any, Any]:
    """(x, starts): where points are drawn, and the first step of each stretch that a pair of them stands for.

    Up to `points` steps each is a point of its own, and `starts` is None. More are cut into stretches with
    equally many steps; a stretch has two points, for its lowest and its highest value.

    >>> x, starts = axis(np.arange(10), 4)
    >>> x.tolist(), starts.tolist()
    ([0, 4, 5, 9], [0, 5])
    """
    if len(steps) <= points:
        return np.asarray(steps), None
    cuts = np.linspace(0, len(steps), max(points // 2, 1) + 1).astype(int)
    starts, ends = np.asarray(steps)[cuts[:-1]], np.asarray(steps)[cuts[1:] - 1]
    return np.stack([starts, ends], axis=1).ravel(), starts


def onto(x: Any, starts: Any, steps: Any, values: Any) -> Any:
    """A series on the points of `axis`; NaN where it has no finite value.

    Of each stretch the lowest and the highest value are kept, in the order in which they came.

    >>> steps = np.arange(10)
    >>> values = np.zeros(10)
    >>> values[7] = 99.0
    >>> onto(*axis(steps, 4), steps, values).tolist()
    [0.0, 0.0, 0.0, 99.0]
    """
    out = np.full(len(x), np.nan)
    values = np.where(np.isfinite(values), values, np.nan)
    if starts is None:
        out[np.searchsorted(x, steps)] = values
        return out
    there = ~np.isnan(values)
    steps, values = steps[there], values[there]
    if not len(steps):
        return out
    stretch = np.searchsorted(starts, steps, side="right") - 1
    first = np.flatnonzero(np.append(True, np.diff(stretch) > 0))
    used = stretch[first]
    low, high = np.minimum.reduceat(values, first), np.maximum.reduceat(values, first)
    sizes = np.diff(np.append(first, len(values)))
    place = np.arange(len(values))
    at_low = np.minimum.reduceat(np.where(values == np.repeat(low, sizes), place, len(values)), first)
    at_high = np.minimum.reduceat(np.where(values == np.repeat(high, sizes), place, len(values)), first)
    rising = at_low <= at_high
    out[2 * used] = np.where(rising, low, high)
    out[2 * used + 1] = np.where(rising, high, low)
    return out


def marked(x: Any, starts: Any, steps: Any) -> list[int]:
    """The numbers of the points that stand for any of these steps."""
    if starts is None:
        return np.unique(np.searchsorted(x, steps)).tolist()  # type: ignore[no-any-return]
    return (2 * np.unique(np.searchsorted(starts, steps, side="right") - 1)).tolist()  # type: ignore[no-any-return]
