"""Rows: what a row of statistics has, and how many of them lie in memory. Whoever has to do with rows asks here.

A row is about one tensor of one step: of a site (the name of a layer, parameter or operator), a kind, a call
within the forward, a mode ("train" or "eval") and a rank. A *series* is the same over the steps.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from struct import Struct
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from hookline.audit import Audit
from hookline.histograms import Histograms

Row = dict[str, Any]
"""A row for people; from the kernel to the disk and back to a reader rows are columns (`Rows`)."""
Series = tuple[str, str, int, str]
"""Site, kind, call and mode of a row: the values of SERIES."""
Curve = tuple[NDArray[np.int64], dict[str, NDArray[Any]]]
"""The steps of a series, and an array of the same length for each statistic."""

COLUMNS: dict[str, type] = {
    "count": int,
    "mean": float,
    "std": float,
    "min": float,
    "max": float,
    "absmax": float,
    "l2": float,
    "zeros": int,
    "near_zero": float,
    "nan": int,
    "inf": int,
}
"""The statistics that every row has, and their types. The one list of them: all others are made of it."""

STATISTICS = tuple(COLUMNS)
COUNTS = tuple(name for name, kind in COLUMNS.items() if kind is int)
FLOATS = tuple(name for name, kind in COLUMNS.items() if kind is float)
HISTOGRAM = "hist"
RATIO = "ratio"
"""Of an update: its norm relative to that of the weight."""
LOST = "lost"
"""Of an update in a short format: the share of weights that have a gradient and stay as they are."""
FINGERPRINT = "fingerprint"
"""With `watch(fingerprint=True)`: 16 hexadecimal digits made of all bits of the tensor, in their order."""

SERIES = ("site", "kind", "call", "mode")
"""What tells the series of one file apart: a file is of one rank."""
IDENTITY = ("site", "kind", "step", "call", "rank", "mode")
"""What a row is about."""
FIXED = frozenset((*IDENTITY, *STATISTICS, HISTOGRAM))
"""What a row has besides is of a user, or of its kind: `ratio`, say."""

OF_PARAMETERS = ("param", "param_grad", "update", "moment", "moment_sq")
"""The kinds whose site is a parameter."""
KINDS = ("input", "output", "grad_input", "grad_output", *OF_PARAMETERS)
SCALAR = "scalar"
"""The kind of a row about one number of the training at a step, whose site is the number's name: "loss". Its mean,
min and max are the number. It is of no tensor: who asks for rows without a kind does not get it."""
OF_CALLS = ("input", "output", "grad_input", "grad_output")
"""The kinds of which there may be a row for each channel."""


def series_of(row: Row) -> Series:
    """The series that a row is of.

    >>> series_of({"site": "fc", "kind": "output", "step": 3, "call": 0, "mode": "train"})
    ('fc', 'output', 0, 'train')
    """
    return row["site"], row["kind"], row["call"], row["mode"]


class Rows:
    """Many rows as columns: one array of whole numbers, one of floats, and the histograms without empty bins.

    It can be gone through as a list of dicts, which are made for that and not kept.

    `series` says what each row is about, `integers` and `floats` have a line for each of COUNTS and FLOATS, and
    `extra` has what a row has besides ({} for most). All rows are of one rank.

    >>> rows = Rows.of([{"site": "fc", "kind": "output", "call": 0, "mode": "train", "step": 3, "mean": 0.5}])
    >>> len(rows), rows.column("mean").tolist(), [row["step"] for row in rows]
    (1, [0.5], [3])
    """

    __slots__ = ("extra", "floats", "hists", "integers", "rank", "series", "steps")

    def __init__(
        self,
        series: Sequence[Series],
        steps: NDArray[np.int64],
        integers: NDArray[np.int64],
        floats: NDArray[np.float64],
        hists: Histograms,
        extra: Sequence[Row],
        rank: int = 0,
    ) -> None:
        self.series, self.steps, self.rank = series, steps, rank
        self.integers, self.floats, self.hists, self.extra = integers, floats, hists, extra

    @classmethod
    def of(cls, rows: Rows | Iterable[Row]) -> Rows:
        """The rows that dicts have, as columns; a count that is missing is 0, a float NaN."""
        if isinstance(rows, Rows):
            return rows
        rows = list(rows)
        return cls(
            [series_of(row) for row in rows],
            np.asarray([row["step"] for row in rows], np.int64),
            np.asarray([[row.get(name, 0) for row in rows] for name in COUNTS], np.int64),
            np.asarray([[row.get(name, np.nan) for row in rows] for name in FLOATS], np.float64),
            Histograms.of([row.get(HISTOGRAM) for row in rows]),
            [{name: value for name, value in row.items() if name not in FIXED} for row in rows],
            rows[0].get("rank", 0) if rows else 0,
        )

    @classmethod
    def joined(cls, parts: Sequence[Rows]) -> Rows:
        """The rows of all parts, one after the other; they are of one rank."""
        if len(parts) == 1:
            return parts[0]
        return cls(
            [one for part in parts for one in part.series],
            np.concatenate([part.steps for part in parts]),
            np.concatenate([part.integers for part in parts], axis=1),
            np.concatenate([part.floats for part in parts], axis=1),
            Histograms.joined(part.hists for part in parts),
            [one for part in parts for one in part.extra],
            parts[0].rank,
        )

    def at(self, places: Any) -> Rows:
        """The rows at these places, in this order."""
        return Rows(
            [self.series[place] for place in places],
            self.steps[places],
            self.integers[:, places],
            self.floats[:, places],
            self.hists.at(places),
            [self.extra[place] for place in places],
            self.rank,
        )

    def column(self, name: str) -> NDArray[Any]:
        """One statistic of all rows."""
        found: NDArray[Any]
        found = self.integers[COUNTS.index(name)] if name in COUNTS else self.floats[FLOATS.index(name)]
        return found

    def curves(self) -> dict[Series, Curve]:
        """The steps of each series and its statistics at these, in the order in which they are here."""
        places: dict[Series, list[int]] = {}
        for place, one in enumerate(self.series):
            places.setdefault(one, []).append(place)
        columns = {name: self.column(name) for name in STATISTICS}
        for name in (RATIO, LOST):
            columns[name] = np.asarray([extra.get(name, np.nan) for extra in self.extra], np.float64)
        return {
            one: (self.steps[some], {name: values[some] for name, values in columns.items()})
            for one, some in places.items()
        }

    def __len__(self) -> int:
        return len(self.series)

    def __iter__(self) -> Iterator[Row]:
        columns = [self.column(name).tolist() for name in STATISTICS]
        numbers = zip(*columns, strict=True)
        each = zip(self.series, self.steps.tolist(), numbers, self.hists.dense(), self.extra, strict=True)
        for (site, kind, call, mode), step, values, hist, extra in each:
            row = {"site": site, "kind": kind, "step": step, "call": call, "rank": self.rank, "mode": mode}
            row.update(zip(STATISTICS, values, strict=True))
            row[HISTOGRAM] = hist
            row.update(extra)
            yield row

    @property
    def nbytes(self) -> int:
        """How many bytes the numbers take; names, which all steps share, are not counted."""
        return self.steps.nbytes + self.integers.nbytes + self.floats.nbytes + self.hists.nbytes

    def is_same(self, other: Rows | None) -> bool:
        """Whether both have the same rows, in the same order, to the bit."""
        if other is None or self.series != other.series or self.extra != other.extra or self.rank != other.rank:
            return False
        mine, others = ((one.steps, one.integers, one.floats, *one.hists[:3]) for one in (self, other))
        return all(a.tobytes() == b.tobytes() for a, b in zip(mine, others, strict=True))


@runtime_checkable
class HasRows(Protocol):
    """What can be asked of rows, wherever they are: a `Watch` has those of its last steps, a `Run` all of them."""

    @property
    def sites(self) -> list[str]:
        """The names of all sites, in the order in which they first came."""

    @property
    def steps(self) -> list[int]:
        """Every step that has a row."""

    def rows(
        self,
        site: str | None = None,
        kind: str | None = None,
        *,
        stat: str | None = None,
        steps: Any = None,
    ) -> list[Row]:
        """The rows of a site (a name or glob), a kind, and steps from one to another; `stat`: that one only."""

    def scalars(self) -> dict[str, Any]:
        """The numbers of the training by name, each with its `steps` and `values`: "loss", "lr", those logged."""

    def to_pandas(self, *, histograms: bool = False) -> Any:
        """The rows as a pandas DataFrame, scalars too."""

    def to_polars(self) -> Any:
        """The rows as a polars DataFrame."""

    def to_arrow(self) -> Any:
        """The rows as an Arrow table."""

    def plot(self, site: str | None = None, kind: str = "output") -> Any:
        """A Figure of the chosen sites."""

    def diagnose(self, **how: Any) -> list[Any]:
        """What is wrong, the worst first."""

    def audit(self) -> Audit:
        """For every site that was asked for: measured so many times, or never, and why."""


HEAD = Struct("4d5q")
"""A reduction's result: mean, m2, min, max as doubles, then how many values are finite, zero, near zero, NaN, Inf.
The kernel writes it (`lines/_kernel.h`); the histogram follows."""
HEADER = HEAD.size // 8
"""How many 64-bit words that is."""
