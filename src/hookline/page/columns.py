"""Columns: the statistics of one file of a run as arrays, read once and kept up to date.

Rows as dicts would be a hundred times as large: 200 layers over 2,500 steps are a million of them.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from hookline.sinks.database import GROUP, Reader
from hookline.sinks.frames import COUNTS, FLOATS

STATS = (*FLOATS, *COUNTS)
AT_ONCE = 32
"""So many frames are fetched at a time."""
HISTOGRAM_BYTES = 128 << 20
"""Histograms of groups that were not asked for lately are forgotten beyond this, and read again when needed."""


class Columns(NamedTuple):
    """One series over the steps: `steps` in order, and an array of the same length for each statistic."""

    steps: Any
    stats: dict[str, Any]


class Counted(NamedTuple):
    """Histograms of one series: for each counted bin of each row the step, the bin and the count."""

    steps: Any
    bins: Any
    counts: Any


class _Group:
    """The frames of up to GROUP series."""

    def __init__(self) -> None:
        self._chunks: list[tuple[Any, dict[str, Any]]] = []
        self._sorted: tuple[Any, dict[str, Any]] | None = None

    def add(self, columns: dict[str, Any], extra: list[dict[str, Any]]) -> None:
        stats = {name: columns[name].astype(np.float64) for name in ("step", *STATS)}
        for name in {name for row in extra for name, value in row.items() if isinstance(value, (int, float))}:
            values = [row.get(name) for row in extra]
            stats[name] = np.asarray([v if isinstance(v, (int, float)) else np.nan for v in values], np.float64)
        self._chunks.append((columns["series"], stats))
        self._sorted = None

    def of(self, number: int) -> Columns:
        if self._sorted is None:
            series = np.concatenate([some for some, _ in self._chunks])
            names = list(dict.fromkeys(name for _, stats in self._chunks for name in stats))
            gaps = [np.full(len(some), np.nan) for some, _ in self._chunks]
            joined = {
                name: np.concatenate([s.get(name, gap) for (_, s), gap in zip(self._chunks, gaps, strict=True)])
                for name in names
            }
            order = np.lexsort((joined["step"], series))  # stable: what was written later comes later
            self._sorted = series[order], {name: values[order] for name, values in joined.items()}
            self._chunks = [self._sorted]
        series, stats = self._sorted
        found = slice(*np.searchsorted(series, [number, number + 1]))
        one = {name: values[found] for name, values in stats.items()}
        return Columns(one.pop("step").astype(np.int64), one)


class FileColumns:
    """One file: its series, and what has been read of it."""

    def __init__(self, path: Path) -> None:
        self.reader = Reader(path)
        self.rank = int(self.reader.meta.get("rank", 0))
        self.series: dict[int, dict[str, Any]] = {}
        self.steps: set[int] = set()
        self.read, self.there = 0, 0
        self._groups: dict[int, _Group] = {}
        self._histograms: OrderedDict[int, _Histograms] = OrderedDict()

    def catch_up(self, until: float) -> int:
        """Reads what has been written since, at most until that time (`time.monotonic`); how many frames."""
        self.there, _ = self.reader.last_frame()
        frames = 0
        while self.read < self.there:
            got = self.reader.frames(self.read, AT_ONCE)
            for frame in got:
                self._groups.setdefault(frame.group, _Group()).add(frame.columns, frame.extra)
                self.steps.update(np.unique(frame.columns["step"]).tolist())
                self.read = frame.number
            frames += len(got)
            if not got:  # what is left is damaged
                self.read = self.there
            if time.monotonic() > until:
                break
        if frames:
            known = self.reader.series()
            self.series = {number: one for number, one in known.items() if number // GROUP in self._groups}
        return frames

    def columns(self, number: int) -> Columns:
        """A series, as far as it has been read."""
        return self._groups[number // GROUP].of(number)

    def histograms(self, number: int) -> Counted:
        """The histograms of a series, read when they are first asked for."""
        group = number // GROUP
        found = self._histograms.setdefault(group, _Histograms())
        self._histograms.move_to_end(group)
        found.catch_up(self.reader, group)
        while len(self._histograms) > 1 and sum(one.bytes for one in self._histograms.values()) > HISTOGRAM_BYTES:
            self._histograms.popitem(last=False)
        return found.of(number)

    def close(self) -> None:
        self.reader.close()


class _Histograms:
    """The histograms of up to GROUP series, as one entry for each bin that is not empty."""

    def __init__(self) -> None:
        self._after = 0
        self._sorted = False
        self._chunks: list[tuple[Any, ...]] = []

    @property
    def bytes(self) -> int:
        return sum(array.nbytes for chunk in self._chunks for array in chunk)

    def catch_up(self, reader: Reader, group: int) -> None:
        while got := reader.frames(self._after, AT_ONCE, group):
            for frame in got:
                assert frame.hists is not None
                lengths, bins, counts, _ = frame.hists
                lengths = np.maximum(lengths, 0)
                series, steps = (np.repeat(frame.columns[name], lengths) for name in ("series", "step"))
                frames = np.full(len(series), frame.number, np.int64)
                self._chunks.append((series.astype(np.int32), frames, steps, bins.astype(np.uint16), counts))
                self._after, self._sorted = frame.number, False

    def of(self, number: int) -> Counted:
        if not self._chunks:
            return Counted(*(np.empty(0, np.int64) for _ in range(3)))
        if not self._sorted:
            joined = [np.concatenate(arrays) for arrays in zip(*self._chunks, strict=True)]
            order = np.argsort(joined[0], kind="stable")
            self._chunks = [tuple(array[order] for array in joined)]
            self._sorted = True
        series, *columns = self._chunks[0]
        mine = slice(*np.searchsorted(series, [number, number + 1]))
        frames, *found = [column[mine] for column in columns]
        # A step that was written twice counts once, as it was written last.
        _, at = np.unique(found[0], return_inverse=True)
        last = np.zeros(at.max(initial=-1) + 1, np.int64)
        np.maximum.at(last, at, frames)
        return Counted(*(column[frames == last[at]] for column in found))
