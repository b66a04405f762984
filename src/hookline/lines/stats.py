"""Stats: what is left of a tensor, in numbers that need no framework and can be merged.

Upstream: reduce. Downstream: rows of a watch, merging over micro-batches, steps and ranks.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hookline import bins
from hookline.backends import arrays
from hookline.errors import InvalidArgument
from hookline.lines.columns import Moments, statistics_of
from hookline.lines.formats import format_of
from hookline.rows import HEAD, HEADER, HISTOGRAM


class Extra(NamedTuple):
    """The value of a statistic that a user added, and how it merges: "mean", "sum", "min" or "max"."""

    value: float
    merge: str


@dataclass(frozen=True, slots=True, eq=False)
class Stats:
    """Statistics of `count` values, of which `nan` and `inf` are not finite; the rest is of the finite ones.

    `m2` is the sum of squared deviations from the mean, `sumsq` that of squares, `near_zero` counts
    |x| <= 0.05, `hist` is an exponent histogram (`hookline.lines.bins`) or None.

    >>> Stats.of([1.0, 2.0]).merge(Stats.of([3.0, math.nan])).row()["mean"]
    2.0
    """

    count: int = 0
    mean: float = 0.0
    m2: float = 0.0
    min: float = math.inf
    max: float = -math.inf
    sumsq: float = 0.0
    zeros: int = 0
    near_zero: int = 0
    nan: int = 0
    inf: int = 0
    hist: bins.Counts | None = None
    extra: Mapping[str, Extra] = field(default_factory=dict)

    @property
    def finite(self) -> int:
        """How many values are neither NaN nor Inf."""
        return self.count - self.nan - self.inf

    @classmethod
    def of(cls, values: Any, histogram: bool = True) -> Stats:
        """The statistics of numbers or a numpy array: plain and slow, for tests and for data without a framework.

        As everywhere, 0.05 is taken in the values' own dtype.
        """
        return cls.from_words(arrays.words(arrays.reducible(np.asarray(values)), histogram))

    @classmethod
    def from_row(cls, row: Mapping[str, Any], merges: Mapping[str, str] | None = None) -> Stats:
        """The statistics that a row was made of, so that rows merge: over calls, steps, windows and ranks.

        `merges` says of statistics that a user added how they merge ("mean", "sum", "min", "max"); those that
        it does not name are left out.

        >>> rows = [Stats.of([1.0, 2.0]).row(), Stats.of([6.0]).row()]
        >>> Stats.merged(map(Stats.from_row, rows)).row()["mean"]
        3.0
        """
        count, nan, inf = row["count"], row["nan"], row["inf"]
        finite = count - nan - inf
        return cls(
            count=count,
            mean=row["mean"] if finite else 0.0,
            m2=row["std"] ** 2 * (finite - 1) if finite > 1 else 0.0,
            min=row["min"] if finite else math.inf,
            max=row["max"] if finite else -math.inf,
            sumsq=row["l2"] ** 2 if finite else 0.0,
            zeros=row["zeros"],
            near_zero=round(row["near_zero"] * count) if count else 0,
            nan=nan,
            inf=inf,
            hist=row.get(HISTOGRAM),
            extra={name: Extra(row[name], how) for name, how in (merges or {}).items() if name in row},
        )

    @classmethod
    def from_words(cls, words: Any, extra: Mapping[str, Extra] | None = None) -> Stats:
        """The statistics in a reduction's result: HEADER words and, if there are more, the histogram.

        `words` is any memory of 64-bit integers; the histogram goes on living in it.
        """
        mean, m2, low, high, finite, zeros, near_zero, nan, inf = HEAD.unpack_from(words)
        hist = np.frombuffer(words, np.int64, offset=8 * HEADER) if len(words) > HEADER else None
        sumsq = m2 + finite * (mean * mean)  # both terms are positive: nothing cancels
        return cls(finite + nan + inf, mean, m2, low, high, sumsq, zeros, near_zero, nan, inf, hist, extra or {})

    def words(self) -> NDArray[np.int64]:
        """What `from_words` reads; statistics that a user added are not in it.

        >>> Stats.from_words(Stats.of([3.0, -4.0]).words()).row()["l2"]
        5.0
        """
        head = np.frombuffer(
            HEAD.pack(
                self.mean, self.m2, self.min, self.max, self.finite, self.zeros, self.near_zero, self.nan, self.inf
            ),
            np.int64,
        )
        return head if self.hist is None else np.concatenate([head, self.hist])

    def merge(self, other: Stats) -> Stats:
        """The statistics of both parts' values together, as if they had been reduced in one pass.

        The histogram is that of both where both have one; None where the values of one were not counted.
        """
        if not self.count:
            return other if other.count or self.hist is None else self
        if not other.count:
            return self
        mean, m2 = _moments(self, other)
        return Stats(
            count=self.count + other.count,
            mean=mean,
            m2=m2,
            min=min(self.min, other.min),
            max=max(self.max, other.max),
            sumsq=self.sumsq + other.sumsq,
            zeros=self.zeros + other.zeros,
            near_zero=self.near_zero + other.near_zero,
            nan=self.nan + other.nan,
            inf=self.inf + other.inf,
            hist=None if self.hist is None or other.hist is None else self.hist + other.hist,
            extra={name: _merged(name, self, other) for name in self.extra if name in other.extra},
        )

    @classmethod
    def merged(cls, parts: Iterable[Stats]) -> Stats:
        """All parts in one.

        >>> Stats.merged(Stats.of([n]) for n in range(5)).m2
        10.0
        """
        total = cls()
        for part in parts:
            total = total.merge(part)
        return total

    def row(self) -> dict[str, Any]:
        """The statistics by their public names, and those that a user added; see `columns.statistics_of`.

        >>> row = Stats.of([0.0, 3.0, -4.0, math.inf], histogram=False).row()
        >>> row["count"], row["l2"], row["absmax"], row["zeros"], row["near_zero"], row["inf"]
        (4, 5.0, 4.0, 1, 0.25, 1)
        """
        moments = Moments(
            self.mean, self.m2, self.min, self.max, self.finite, self.zeros, self.near_zero, self.nan, self.inf
        )
        row = {name: np.asarray(value).item() for name, value in statistics_of(moments, self.sumsq).items()}
        return row | {HISTOGRAM: self.hist} | {name: extra.value for name, extra in self.extra.items()}

    def quantile(self, q: float) -> float:
        """The value below which a share `q` of the finite values lies: in the bin of the true one.

        >>> round(Stats.of(range(1, 1001)).quantile(0.9), 1)
        900.1
        """
        if not 0 <= q <= 1:
            raise InvalidArgument(f"quantile({q!r}): expected a share between 0 and 1.")
        return bins.quantile(self._counted("quantile"), q, self.min, self.max)

    def overflow(self, format: str) -> float:
        """The share of finite values that would become Inf (or saturate) as fp16, bf16, fp8_e4m3 or fp8_e5m2.

        >>> Stats.of([1.0, 1e5, 2e5, 1e-9]).overflow("fp16")
        0.5
        """
        hist, limit = self._counted("overflow"), format_of(format).overflow
        return bins.share_beyond(hist, limit) / self.finite if self.finite else math.nan

    def underflow(self, format: str) -> float:
        """The share of finite values that are not zero and would become zero in that format.

        >>> Stats.of([1.0, 0.0, 2e5, 1e-9]).underflow("fp16")
        0.25
        """
        hist, limit = self._counted("underflow"), format_of(format).underflow
        if not self.finite:
            return math.nan
        return (self.finite - int(hist[bins.ZERO]) - bins.share_beyond(hist, limit)) / self.finite

    def _counted(self, what: str) -> bins.Counts:
        if self.hist is None:
            raise InvalidArgument(
                f"{what} is read from the histogram, and there is none: reduce with histogram=True."
            )
        return self.hist


def _moments(a: Stats, b: Stats) -> tuple[float, float]:
    """Mean and m2 of two parts, by Chan's formula."""
    if not a.finite or not b.finite:
        part = a if a.finite else b
        return part.mean, part.m2
    n = a.finite + b.finite
    share, delta = b.finite / n, b.mean - a.mean
    if math.isfinite(delta):
        mean = a.mean + delta * share
    else:  # fp64 near its limits: the difference of two means can be beyond them
        mean = a.mean * (1 - share) + b.mean * share
    return mean, a.m2 + b.m2 + delta * delta * (a.finite * share)


def _merged(name: str, a: Stats, b: Stats) -> Extra:
    (x, how), (y, _) = a.extra[name], b.extra[name]
    if how == "mean":
        return Extra((x * a.count + y * b.count) / (a.count + b.count), how)
    return Extra({"sum": x + y, "min": min(x, y), "max": max(x, y)}[how], how)
