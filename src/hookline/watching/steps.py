"""Steps: gathers what is reduced during one step and turns it into rows when the step ends."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable
from contextlib import suppress
from typing import Any, NamedTuple

from hookline.backends.protocol import Figures
from hookline.lines import Reduced, Stats, collect, collect_channels, reduce, reduce_channels
from hookline.lines.kernel import active
from hookline.lines.reduce import words_of
from hookline.lines.registry import on_tensors, values
from hookline.sinks.frames import Row

BY_CHANNEL = ("output", "input", "grad_output", "grad_input")
COLUMNS = ("count", "mean", "std", "min", "max", "absmax", "l2", "zeros", "near_zero", "nan", "inf")


class Key(NamedTuple):
    """What one row of a step is about."""

    site: str
    kind: str
    call: int
    mode: str


class Wanted(NamedTuple):
    """What is computed of each tensor, besides the statistics that every row has."""

    histogram: bool = True
    stats: tuple[str, ...] = ()
    channels: int | None = None


class Gathered:
    """The reductions of the step under way. Parts with one key, of micro-batches or of several
    tensors of one output, are merged to what one pass over all of them would give."""

    def __init__(self, wanted: Wanted, version: Callable[[Any], int]) -> None:
        self._wanted = wanted
        self._writes = version
        self._latest: tuple[weakref.ref[Any], int, Reduced] | None = None
        found = on_tensors(wanted.stats)
        self._on_tensors = tuple(statistic.name for statistic in found)
        functions = tuple(one.fn for one in found)
        on_host = None if active() is None else words_of
        self.statistics = Figures(wanted.histogram, functions, wanted.channels, on_host)
        self._reduced: dict[Key, list[Reduced]] = {}
        self._channels: dict[Key, list[Reduced]] = {}
        self._numbers: dict[tuple[Key, str], Any] = {}
        self.additions = 0
        """How many tensors were reduced so far, in all steps."""
        self.renew_lock()

    def renew_lock(self) -> None:
        self._adding = threading.Lock()  # a step may end in one thread while another one adds to it

    def __bool__(self) -> bool:
        return bool(self._reduced)

    def add(self, key: Key, tensor: Any) -> None:
        """Reduces a tensor; nothing of it is kept but a few numbers, on its own device."""
        histogram, _, dim = self._wanted
        latest = self._latest
        if latest is not None and latest[0]() is tensor and latest[1] == self._writes(tensor):
            reduced = latest[2]  # a container hands on the very tensor that its last part returned
        else:
            reduced = reduce(tensor, histogram, self._on_tensors)
            # Weak: a tensor that lives on makes the allocator fetch fresh memory for the next one.
            # (The arrays of MXNet can't be referred to weakly.)
            with suppress(TypeError):
                self._latest = weakref.ref(tensor), self._writes(tensor), reduced
        channels = None
        if dim is not None and key.kind in BY_CHANNEL and tensor.ndim > dim:
            channels = reduce_channels(tensor, dim)
        with self._adding:
            self.additions += 1
            self._reduced.setdefault(key, []).append(reduced)
            if channels is not None:
                self._channels.setdefault(key, []).append(channels)

    def forget_latest(self) -> None:
        """What comes next is reduced, also if it is the tensor that came last."""
        self._latest = None

    def add_number(self, key: Key, name: str, number: Any) -> None:
        """One more column of a row; a number or a scalar tensor, read when the step ends."""
        self._numbers[key, name] = number

    def rows(self, step: int, rank: int) -> list[Row]:
        """The rows of the step, after one transfer for all of them; nothing is gathered any more."""
        self._latest = None
        with self._adding:
            reduced, self._reduced = self._reduced, {}
            channels, self._channels = self._channels, {}
            numbers, self._numbers = self._numbers, {}
        return self._rows(reduced, channels, numbers, step, rank)

    def rows_so_far(self, step: int, rank: int) -> list[Row]:
        """The rows that the step would have if it ended now."""
        with self._adding:
            reduced = {key: list(parts) for key, parts in self._reduced.items()}
            channels = {key: list(parts) for key, parts in self._channels.items()}
            numbers = dict(self._numbers)
        return self._rows(reduced, channels, numbers, step, rank)

    def _rows(
        self,
        reduced: dict[Key, list[Reduced]],
        channels: dict[Key, list[Reduced]],
        numbers: dict[tuple[Key, str], Any],
        step: int,
        rank: int,
    ) -> list[Row]:
        stats = iter(collect([part for parts in reduced.values() for part in parts]))
        rows: dict[Key, Row] = {}
        for key, parts in reduced.items():
            merged = Stats.merged(next(stats) for _ in parts)
            rows[key] = {
                "site": key.site,
                "kind": key.kind,
                "step": step,
                "call": key.call,
                "rank": rank,
                "mode": key.mode,
                **merged.row(),
                **values(merged, self._wanted.stats),
            }
        for (key, name), number in numbers.items():
            if key in rows:
                rows[key][name] = float(number)
        self._add_channels(rows, channels)
        _add_ratios(rows)
        return list(rows.values())

    def _add_channels(self, rows: dict[Key, Row], reduced: dict[Key, list[Reduced]]) -> None:
        """`channels` of a row: {statistic: [one number per channel]}."""
        arrived = iter(collect_channels([part for parts in reduced.values() for part in parts]))
        for key, parts in reduced.items():
            each = [Stats.merged(same) for same in zip(*(next(arrived) for _ in parts), strict=False)]
            table = [channel.row() for channel in each]
            rows[key]["channels"] = {name: [row[name] for row in table] for name in COLUMNS}


def _add_ratios(rows: dict[Key, Row]) -> None:
    """`ratio` of an update: its norm relative to that of the weight."""
    for key, row in rows.items():
        weight = rows.get(key._replace(kind="param"))
        if key.kind == "update" and weight is not None:
            row["ratio"] = row["l2"] / weight["l2"] if weight["l2"] else float("nan")
