"""Columns: the statistics of one file of a run as arrays, read when they are asked for and kept up to date.

Opening a file reads which frames there are, and no numbers: a run of millions of rows is on the screen at once.
Series are stored in groups. A group is read whole when one of its series is asked for, and forgotten when others
need the room. Rows as dicts would be a hundred times as large.
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from hookline.errors import RunError
from hookline.rows import COUNTS, FLOATS
from hookline.runfiles.reader import Reader
from hookline.runfiles.schema import GROUP

STATS = (*FLOATS, *COUNTS)
AT_ONCE = 256
"""So many frames are fetched at a time."""
HELD_BYTES = 256 << 20
"""So much is held of all open runs; what was asked for longest ago is forgotten, and read again if needed."""


class Columns(NamedTuple):
    """One series over the steps: `steps` in order, and an array of the same length for each statistic."""

    steps: Any
    stats: dict[str, Any]


class Counted(NamedTuple):
    """Histograms of one series: for each counted bin of each row the step, the bin and the count."""

    steps: Any
    bins: Any
    counts: Any


class Held:
    """What is in memory of many files, up to so many bytes; for many threads."""

    def __init__(self, most: int = HELD_BYTES) -> None:
        self.most = most
        self.bytes = 0
        self.is_over = False
        """Whoever reads now is to stop: nobody waits for it."""
        self._lock = threading.Lock()
        self._sizes: OrderedDict[tuple[int, int], tuple[dict[int, Any], int]] = OrderedDict()

    def check(self) -> None:
        """RunError if it is over."""
        if self.is_over:
            raise RunError("the run is not read any more: the page was closed.")

    def used(self, where: dict[int, Any], key: int, size: int) -> None:
        """Notes that `where[key]` was used and has that size; others are taken from where they are, for room."""
        with self._lock:
            self._drop((id(where), key))
            self._sizes[id(where), key] = where, size
            self.bytes += size
            while self.bytes > self.most and len(self._sizes) > 1:
                oldest = next(iter(self._sizes))
                self._drop(oldest)[0].pop(oldest[1], None)

    def forget(self, where: dict[int, Any]) -> None:
        """Nothing of `where` is used any more."""
        with self._lock:
            for place in [place for place in self._sizes if place[0] == id(where)]:
                self._drop(place)
            where.clear()

    def _drop(self, place: tuple[int, int]) -> tuple[dict[int, Any], int]:
        where, size = self._sizes.pop(place, ({}, 0))
        self.bytes -= size
        return where, size


class FileColumns:
    """One file: its series, the steps that it has, and what is held of its numbers."""

    def __init__(self, path: Path, held: Held) -> None:
        self.reader = Reader(path)
        self.rank = int(self.reader.meta.get("rank", 0))
        self.series: dict[int, dict[str, Any]] = {}
        self.steps: set[int] = set()
        self.there = 0
        """The number of the last frame that is known."""
        self._held = held
        self._ends: dict[int, tuple[int, int]] = {}
        """{group: (first, last frame)}."""
        self._stretches: dict[tuple[int, int], int] = {}
        """{(first, last step) of a frame: its number}; which steps lie between is known when it is read."""
        self._waiting: list[tuple[int, int]] = []
        self._groups: dict[int, _Group] = {}
        self._histograms: dict[int, _Histograms] = {}

    def catch_up(self, until: float) -> int:
        """Learns which frames were written since; how many. Their steps are found until that time at most."""
        new = self.reader.index(self.there)
        for number, group, first, last, _ in new:
            self._ends[group] = self._ends.get(group, (number, 0))[0], number
            if first == last:
                self.steps.add(first)
            elif (first, last) not in self._stretches:  # groups that are written together have the same steps
                self._stretches[first, last] = number
                self._waiting.append((first, last))
        if new:
            self.there = new[-1].number
            known = self.reader.series()
            self.series = {number: one for number, one in known.items() if number // GROUP in self._ends}
        while self._waiting:
            for _, columns, _ in _decoded(self.reader, self._stretches[self._waiting.pop()] - 1, 1):
                self.steps.update(np.unique(columns["step"]).tolist())
            if time.monotonic() > until or self._held.is_over:
                break
        return len(new)

    @property
    def progress(self) -> float:
        """The share of stretches whose steps are known."""
        return 1 - len(self._waiting) / len(self._stretches) if self._waiting else 1.0

    def names(self, group: int) -> set[str]:
        """The statistics that the first and the last rows of a group have besides those of all."""
        found: set[str] = set()
        for number in self._ends[group]:
            for _, _, extra in _decoded(self.reader, number - 1, 1):
                found |= _numbers_of(extra)
        return found

    @property
    def groups(self) -> list[int]:
        return list(self._ends)

    def columns(self, number: int) -> Columns:
        """A series, as far as it is known."""
        group = number // GROUP
        found = self._groups.setdefault(group, _Group())
        self.steps |= found.catch_up(self.reader, group, self._ends[group][1], self._held)
        one = found.of(number)
        self._held.used(self._groups, group, found.bytes)
        return one

    def histograms(self, number: int) -> Counted:
        """The histograms of a series."""
        group = number // GROUP
        found = self._histograms.setdefault(group, _Histograms())
        found.catch_up(self.reader, group, self._held)
        one = found.of(number)
        self._held.used(self._histograms, group, found.bytes)
        return one

    def close(self) -> None:
        self._held.forget(self._groups)
        self._held.forget(self._histograms)
        self.reader.close()


class _Group:
    """The statistics of up to GROUP series."""

    def __init__(self) -> None:
        self._after = 0
        self._new: list[tuple[dict[str, Any], list[dict[str, Any]]]] = []
        self._series: Any = np.empty(0, np.int64)
        self._stats: dict[str, Any] = {name: np.empty(0) for name in STATS} | {"step": np.empty(0, np.int64)}

    @property
    def bytes(self) -> int:
        return int(self._series.nbytes + sum(values.nbytes for values in self._stats.values()))

    def catch_up(self, reader: Reader, group: int, last: int, held: Held) -> set[int]:
        """Reads the frames that were written since; their steps."""
        steps: set[int] = set()
        while self._after < last:
            held.check()
            before = self._after
            for self._after, columns, extra in _decoded(reader, before, AT_ONCE, group):
                self._new.append((columns, extra))
                steps.update(columns["step"].tolist())
            if self._after == before:  # what is left is damaged
                self._after = last
        return steps

    def of(self, number: int) -> Columns:
        if self._new:
            self._join()
        found = slice(*np.searchsorted(self._series, [number, number + 1]))
        one = {name: values[found] for name, values in self._stats.items()}
        return Columns(one.pop("step"), one)

    def _join(self) -> None:
        """All frames as one array for each statistic, sorted by series and step."""
        frames, extras = zip(*self._new, strict=True)
        self._new = []
        series = np.concatenate([self._series, *(columns["series"] for columns in frames)])
        gap = np.full(len(self._series), np.nan)
        joined = {"step": np.concatenate([self._stats["step"], *(columns["step"] for columns in frames)])}
        for name in STATS:
            before = self._stats.get(name, gap)
            joined[name] = np.concatenate([before, *(columns[name] for columns in frames)]).astype(np.float64)
        more = dict.fromkeys([*self._stats, *(name for extra in extras for name in sorted(_numbers_of(extra)))])
        for name in more.keys() - joined.keys():
            before = self._stats.get(name, gap)
            joined[name] = np.concatenate([before, *(_column(extra, name) for extra in extras)])
        order = np.lexsort((joined["step"], series))  # stable: what was written later comes later
        self._series = series[order].astype(np.int64)
        self._stats = {name: values[order] for name, values in joined.items()}


class _Histograms:
    """The histograms of up to GROUP series, as one entry for each bin that is not empty."""

    def __init__(self) -> None:
        self._after = 0
        self._sorted = False
        self._chunks: list[tuple[Any, ...]] = []

    @property
    def bytes(self) -> int:
        return sum(array.nbytes for chunk in self._chunks for array in chunk)

    def catch_up(self, reader: Reader, group: int, held: Held) -> None:
        while got := reader.frames(self._after, AT_ONCE, group):
            held.check()
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


def _decoded(
    reader: Reader, after: int, limit: int, group: int | None = None
) -> Iterator[tuple[int, dict[str, Any], list[dict[str, Any]]]]:
    """(number, columns, what else each row has) of frames, without their histograms."""
    for frame in reader.frames(after, limit, group, hists=False):
        yield frame.number, frame.columns, frame.extra


def _numbers_of(extra: list[dict[str, Any]]) -> set[str]:
    return {name for row in extra for name, value in row.items() if isinstance(value, (int, float))}


def _column(extra: list[dict[str, Any]], name: str) -> Any:
    values = [row.get(name) for row in extra]
    return np.asarray([value if isinstance(value, (int, float)) else np.nan for value in values], np.float64)
