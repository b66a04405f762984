"""Run measuring: how far the statistics of two runs are apart, and whether rounding could have done that.

Two trainings that round otherwise drift apart, more with every step. So what is allowed is measured: at the first
step at which anything differs it is rounding of the dtype alone, and later also what a training can have made of
the differences before.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hookline.diffs.measures import step_of
from hookline.diffs.run_histograms import absmax, moved
from hookline.diffs.run_reading import Numbers
from hookline.rows import COUNTS, HISTOGRAM, OF_CALLS, SCALAR

Array = NDArray[Any]

OF_AVERAGE = ("mean", "std", "l2")
OF_EXTREMES = ("min", "max", "absmax")
NAMES = ("count", "nan", "inf", *OF_AVERAGE, *OF_EXTREMES, "zeros", HISTOGRAM)
"""The statistics that are compared, in the order of the lines of a table of gaps."""
FACTORS = np.asarray([1.0] * 6 + [4.0] * 3 + [8.0] * 2)[:, None]
"""What rounding may do to each, relative to what it does to an average: one value is not averaged, and the share
of values that are zero, or in a bin, changes with those that lie next to its edge."""
SLACK = 2.0
"""So many values may be in another bin, and a sixteenth of the root of their number."""
LEAST, MOST = 8.0, 256.0
"""A sum of n terms rounds by about sqrt(n) steps of the dtype, of which so many are counted; LEAST are always."""
SINGLE, DOUBLE = step_of("float32"), step_of("float64")
OF_MANY = (SCALAR, "param_grad", "update", "moment", "moment_sq")
"""What is summed up over a batch, so that the number of its terms is not that of its values."""
GROWTH = 4.0
"""Within a step of a training a difference may become so many times as large, and still be the same difference."""
LONGEST = 5
"""Over more steps than that, a difference is followed no further."""
CANCELLED = 1e-3
"""A sum that is so much smaller than its terms make likely has cancelled out: rounding is most of it."""
OF_FORWARD, OF_BACKWARD, OF_WEIGHTS = 0, 1, 2
_STEPS = {"bfloat16": 0xFFFF, "float16": 0x1FFF}
_FEW_BITS = 0x7FFFF


@dataclass(frozen=True)
class Apart:
    """The rows of one series that are not the same in both runs.

    `compared` is how many steps both have, `by_bits_compared` at how many of them both have fingerprints. `error`
    is the relative difference of the statistic that tells most (`stat`, a place in NAMES; `a` and `b` are its
    values), `unit` the same in the unit of `rounding`. `by_bits`: whether bits were compared, and are others.
    """

    compared: int
    by_bits_compared: int
    steps: Array
    error: Array
    unit: Array
    factor: Array
    stat: Array
    a: Array
    b: Array
    by_bits: Array
    ratio: Array
    count: Array
    rounding: float
    least_factor: float
    last_step: int

    def __len__(self) -> int:
        return len(self.steps)

    @property
    def allowed(self) -> float:
        """What is allowed of an average, as a relative difference, where nothing was apart before."""
        return self.rounding * self.least_factor

    def exact(self) -> Apart:
        """The same, where nothing is allowed: all else is compared by its bits."""
        return replace(self, rounding=0.0)


@dataclass(frozen=True)
class Judged:
    """Which rows of an Apart differ, and what was allowed at each, as a relative difference."""

    differs: Array
    tolerance: Array


def apart(
    a: Numbers,
    b: Numbers,
    step: float,
    *,
    floor: Array | None = None,
    given: tuple[float, float] | None = None,
    hists: bool = False,
    kind: str = "output",
) -> Apart:
    """How far two series are apart that have the same steps.

    `step` is that of the coarser dtype at 1. What a value is relative to is at least `floor`. `given` are a user's
    rtol and atol; statistics are then relative to those, and bits don't count. With `hists`, histograms count too.
    """
    gaps, scales = _gaps(a, b, floor, hists)
    if kind not in OF_CALLS or kind.startswith("grad"):
        gaps[NAMES.index("zeros")] = 0.0  # of gradients, zeros are what cancelled out to the last bit
    factors = FACTORS if given is None else given[0] + _over(np.full_like(scales, given[1]), scales)
    with np.errstate(all="ignore"):
        units = np.where(gaps == 0, 0.0, gaps / factors)
    worst = units.argmax(axis=0)
    every = np.arange(len(worst))
    unit = units[worst, every]
    both = a.printed & b.printed if given is None else np.zeros(len(worst), bool)
    other_bits = both & (a.prints != b.prints)
    kept = np.flatnonzero(np.where(both, other_bits, unit > 0))
    at = worst[kept], kept
    counts = a.column("count")
    return Apart(
        compared=len(worst),
        by_bits_compared=int(both.sum()),
        steps=a.steps[kept],
        error=gaps[at],
        unit=unit[kept],
        factor=np.broadcast_to(factors, gaps.shape)[at],
        stat=worst[kept].astype(np.int8),
        a=_values(a, worst, kept),
        b=_values(b, worst, kept),
        by_bits=both[kept],
        ratio=_over(b.column("l2")[kept], a.column("l2")[kept]).astype(np.float32),
        count=counts[kept],
        rounding=1.0
        if given is not None
        else rounding(step, math.inf if kind in OF_MANY else float(counts.max(initial=0.0))),
        least_factor=1.0 if given is None else given[0],
        last_step=int(a.steps[-1]) if len(worst) else 0,
    )


def rounding(step: float, count: float) -> float:
    """By how much rounding may change an average of so many values, relative to their size.

    Halves are summed up in a larger dtype: what is left is the rounding of what goes in and of what comes out.

    >>> rounding(2.0**-23, 100) == 18 * 2.0**-23, rounding(2.0**-7, 100) == 2 * 2.0**-7
    (True, True)
    """
    return step * (LEAST + min(math.sqrt(count), MOST)) if step <= SINGLE else 2 * step


def step_seen(numbers: Numbers) -> float:
    """The step at 1 of the dtype that the values of a series seem to have, by their extremes.

    Rows do not tell the dtype. Numbers of few bits, as 0.5, are of any; they count as float32.

    >>> low = np.float32([0.1, 1.7, -3.3]).view(np.uint32) & ~np.uint32(0xFFFF)
    >>> step_of_values(low.view(np.float32).astype(np.float64)), step_of_values(np.asarray([0.5, 1.0])) == SINGLE
    (0.0078125, True)
    """
    return step_of_values(np.concatenate([numbers.column("min"), numbers.column("max")]))


def step_of_values(values: Array) -> float:
    """The step at 1 of the coarsest dtype that has all of these values, float32 where that can't be told."""
    values = values[np.isfinite(values) & (values != 0)]
    with np.errstate(over="ignore"):
        narrow = values.astype(np.float32)
    if (narrow.astype(np.float64) != values).any():
        return DOUBLE
    bits = narrow.view(np.uint32)
    if (bits & _FEW_BITS != 0).sum() < 2:
        return SINGLE
    return next((step_of(name) for name, rest in _STEPS.items() if not (bits & rest).any()), SINGLE)


def rms(numbers: Numbers) -> Array:
    """The root of the mean square of the finite values, over the steps; 0 where there are none."""
    count = numbers.column("count") - numbers.column("nan") - numbers.column("inf")
    found: Array = np.nan_to_num(numbers.column("l2"), nan=0.0, posinf=np.inf) / np.sqrt(np.maximum(count, 1.0))
    return found


def judge(found: Sequence[tuple[int, Apart, Array | None]], *, grows: bool) -> list[Judged]:
    """Which rows differ, of all series together: each is (what it is of, its rows, more that is allowed there).

    What is of the forward may have grown from forwards before, what is of the backward also from the forward of
    its step. Rows that differ allow nothing.
    """
    allowed = [np.full(len(one), one.rounding) for _, one, _ in found]
    for bound, (_, _, more) in zip(allowed, found, strict=True):
        if more is not None:
            np.maximum(bound, more, out=bound)
    if grows:
        _grow(found, allowed)
    judged = []
    for bound, (_, one, _) in zip(allowed, found, strict=True):
        differs = np.where(one.by_bits, True, one.unit > bound)
        judged.append(Judged(differs, np.where(one.by_bits, 0.0, bound * one.factor)))
    return judged


def _grow(found: Sequence[tuple[int, Apart, Array | None]], allowed: list[Array]) -> None:
    """Adds to what is allowed what a training can have made of differences that were allowed before."""
    some = [place for place, (_, one, _) in enumerate(found) if len(one)]
    if not some:
        return
    steps = np.concatenate([found[place][1].steps for place in some])
    unit = np.concatenate([np.where(found[place][1].by_bits, np.inf, found[place][1].unit) for place in some])
    bound = np.concatenate([allowed[place] for place in some])
    of = np.concatenate([np.full(len(found[place][1]), found[place][0]) for place in some])
    counts_on = np.concatenate([np.full(len(found[place][1]), found[place][2] is None) for place in some])
    order = np.lexsort((of, steps))
    ends = np.flatnonzero(np.diff(steps[order])) + 1
    grown = {OF_FORWARD: 0.0, OF_BACKWARD: 0.0}
    before: int | None = None
    for mine in np.split(order, ends):
        now = int(steps[mine[0]])
        by = GROWTH ** min(now - before, LONGEST) if before is not None else 1.0
        before = now
        came = {part: size * by for part, size in grown.items()}
        for part in (OF_FORWARD, OF_BACKWARD, OF_WEIGHTS):
            rows = mine[of[mine] == part]
            if part != OF_FORWARD:
                came[part] = max(came.get(part, 0.0), GROWTH * max(came[OF_FORWARD], grown[OF_FORWARD]))
            if part == OF_WEIGHTS:
                came[part] = max(came[part], GROWTH * max(came[OF_BACKWARD], grown[OF_BACKWARD]))
            bound[rows] = np.maximum(bound[rows], came[part])
            if (unit[rows] > bound[rows]).any():
                _hand_on(rows, unit, bound, counts_on)
            if part in grown:
                mild = rows[(unit[rows] <= bound[rows]) & counts_on[rows]]
                grown[part] = max(grown[part], float(unit[mild].max(initial=0.0)))
    at = 0
    for place in some:
        size = len(found[place][1])
        allowed[place][:] = bound[at : at + size]
        at += size


def _hand_on(rows: Array, unit: Array, bound: Array, counts_on: Array) -> None:
    """Adds what each place of a step may have got from those before it: a dtype that is shorter rounds more."""
    largest = 0.0
    for row in rows.tolist():
        bound[row] = max(bound[row], GROWTH * largest)
        if counts_on[row] and unit[row] <= bound[row]:
            largest = max(largest, float(unit[row]))


def _gaps(a: Numbers, b: Numbers, floor: Array | None, hists: bool) -> tuple[Array, Array]:
    """The relative difference of each of NAMES over the steps, and what it is relative to."""
    size, largest = _scale(rms(a), rms(b), floor), _scale(absmax(a), absmax(b), floor)
    count = np.maximum(a.column("count"), 1.0)
    finite = np.maximum(a.column("count") - a.column("nan") - a.column("inf"), 1.0)
    whole = np.ones_like(size)
    shares = {"zeros": _beyond_slack(np.abs(a.column("zeros") - b.column("zeros")), count) / count}
    shares[HISTOGRAM] = np.zeros_like(size)
    if hists and a.hists is not None and b.hists is not None:
        shares[HISTOGRAM] = _beyond_slack(moved(a.hists, b.hists, absmax(a)), count) / count
    if floor is not None:  # what has cancelled out may be anything
        shares = {name: np.where(rms(a) < CANCELLED * floor, 0.0, share) for name, share in shares.items()}
    lines, scales = [], []
    for name in NAMES:
        if name in shares:
            lines.append(shares[name])
            scales.append(whole)
        elif name in COUNTS:
            lines.append(np.where(a.column(name) == b.column(name), 0.0, np.inf))
            scales.append(whole)
        else:
            scale = largest if name in OF_EXTREMES else size * np.sqrt(finite) if name == "l2" else size
            lines.append(_over(_distance(a.column(name), b.column(name)), scale))
            scales.append(scale)
    return np.stack(lines), np.stack(scales)


def _distance(one: Array, other: Array) -> Array:
    """|one - other|, where NaN equals NaN, and is infinitely far from a number."""
    with np.errstate(invalid="ignore"):
        gap = np.abs(one - other)
    same = (one == other) | (np.isnan(one) & np.isnan(other))
    found: Array = np.where(same, 0.0, np.where(np.isnan(gap), np.inf, gap))
    return found


def _over(part: Array, whole: Array) -> Array:
    """Quotients; nothing over nothing is nothing, something over nothing infinite."""
    with np.errstate(all="ignore"):
        found: Array = np.where(part == 0, 0.0, np.where(whole == 0, np.inf, part / whole))
    return found


def _scale(one: Array, other: Array, floor: Array | None) -> Array:
    """What a difference is relative to: the size in A, that in B where A has nothing but zeros."""
    found = np.where(one > 0, one, other)
    return found if floor is None else np.maximum(found, floor)


def _beyond_slack(values: Array, count: Array) -> Array:
    found: Array = np.maximum(values - SLACK - np.sqrt(count) / 16, 0.0)
    return found


def _values(numbers: Numbers, worst: Array, kept: Array) -> Array:
    """The statistic that tells most, at the rows that are kept; NaN for a histogram."""
    found = np.full(len(kept), np.nan)
    for at, name in enumerate(NAMES):
        mine = worst[kept] == at
        if name != HISTOGRAM and mine.any():
            found[mine] = numbers.column(name)[kept[mine]]
    return found
