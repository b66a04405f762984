"""Steps: gathers what is reduced during one step and turns it into rows when the step ends."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from contextlib import suppress
from typing import Any, NamedTuple

from hookline.alone import Alone
from hookline.backends.protocol import Figures
from hookline.lines import Reduced, Stats, collect, collect_channels, reduce, reduce_channels
from hookline.lines.kernel import active
from hookline.lines.reduce import words_of
from hookline.lines.registry import BASIC, find, on_tensors, values
from hookline.reporting import report
from hookline.rows import OF_CALLS, STATISTICS, Row

_alone = Alone()
"""A step may end in one thread while another one adds to it."""


class Visit:
    """One call of a site within its forward, by its number, which is final when the call ends.

    `sequence` and `repeated_in` are for the backend's `recomputed`.
    """

    __slots__ = ("number", "repeated_in", "sequence")

    def __init__(self, number: int, sequence: int) -> None:
        self.number, self.sequence = number, sequence
        self.repeated_in: Any = None


class Key(NamedTuple):
    """What one row of a step is about."""

    site: str
    kind: str
    call: int | Visit
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
        self._broken: set[str] = set()
        self._functions = {name: find(name).fn for name in wanted.stats if name not in BASIC}
        self._on_tensors = tuple(statistic.name for statistic in found)
        functions = tuple(one.fn for one in found)
        on_host = None if active() is None else words_of
        self.statistics = Figures(wanted.histogram, functions, wanted.channels, on_host)
        self._reduced: dict[Key, list[Reduced]] = {}
        self._channels: dict[Key, list[Reduced]] = {}
        self._numbers: dict[tuple[Key, str], Any] = {}
        self.additions = 0
        """How many tensors were reduced so far, in all steps."""

    def __bool__(self) -> bool:
        return bool(self._reduced)

    def add(self, key: Key, tensor: Any) -> None:
        """Reduces a tensor; nothing of it is kept but a few numbers, on its own device."""
        histogram, _, dim = self._wanted
        latest = self._latest
        if latest is not None and latest[0]() is tensor and latest[1] == self._writes(tensor):
            reduced = latest[2]  # a container hands on the very tensor that its last part returned
        else:
            reduced = self._reduced_one(tensor, histogram)
            # Weak: a tensor that lives on makes the allocator fetch fresh memory for the next one.
            # (The arrays of MXNet can't be referred to weakly.)
            with suppress(TypeError):
                self._latest = weakref.ref(tensor), self._writes(tensor), reduced
        channels = None
        if dim is not None and key.kind in OF_CALLS and tensor.ndim > dim:
            channels = reduce_channels(tensor, dim)
        self._take(key, reduced, channels)

    def _reduced_one(self, tensor: Any, histogram: bool) -> Reduced:
        """A tensor's reduction; of a user's statistics those that work on it."""
        try:
            return reduce(tensor, histogram, self._on_tensors)
        except Exception:
            if not self._on_tensors:
                raise
        reduced = reduce(tensor, histogram)  # it is not the tensor
        for name in self._on_tensors:
            try:
                collect([reduce(tensor, histogram, [name])])
            except Exception as error:
                self._leave_out(name, error)
        return reduce(tensor, histogram, self._on_tensors) if self._on_tensors else reduced

    def _leave_out(self, name: str, error: Exception) -> None:
        self._broken.add(name)
        self._on_tensors = tuple(other for other in self._on_tensors if other != name)
        report(f"watch: the statistic {name!r}", self._functions.get(name), error, "it is NaN from now on")

    def _more(self, stats: Stats) -> dict[str, Any]:
        """The statistics that were asked for besides; NaN for one that raises, which is told once."""
        found: dict[str, Any] = {}
        for name in self._wanted.stats:
            try:
                if name not in self._broken:
                    found |= values(stats, [name])
            except Exception as error:  # training goes on, whatever it is
                self._leave_out(name, error)
        return {name: found.get(name, float("nan")) for name in self._wanted.stats}

    @_alone
    def _take(self, key: Key, reduced: Reduced, channels: Reduced | None) -> None:
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
        return self._rows(*self._handed_over(), step, rank)

    def rows_so_far(self, step: int, rank: int) -> list[Row]:
        """The rows that the step would have if it ended now."""
        return self._rows(*self._so_far(), step, rank)

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
                **self._more(merged),
            }
        for (key, name), number in numbers.items():
            if key in rows:
                rows[key][name] = float(number)
        self._add_channels(rows, channels)
        _add_ratios(rows)
        return list(rows.values())

    @_alone
    def _so_far(self) -> tuple[dict[Key, list[Reduced]], dict[Key, list[Reduced]], dict[Any, Any]]:
        return _numbered(self._reduced), _numbered(self._channels), dict(self._numbers)

    @_alone
    def _handed_over(self) -> tuple[dict[Key, list[Reduced]], dict[Key, list[Reduced]], dict[Any, Any]]:
        reduced, self._reduced = _numbered(self._reduced), {}
        channels, self._channels = _numbered(self._channels), {}
        numbers, self._numbers = self._numbers, {}
        return reduced, channels, numbers

    def _add_channels(self, rows: dict[Key, Row], reduced: dict[Key, list[Reduced]]) -> None:
        """`channels` of a row: {statistic: [one number per channel]}."""
        arrived = iter(collect_channels([part for parts in reduced.values() for part in parts]))
        for key, parts in reduced.items():
            each = [Stats.merged(same) for same in zip(*(next(arrived) for _ in parts), strict=False)]
            table = [channel.row() for channel in each]
            rows[key]["channels"] = {name: [row[name] for row in table] for name in STATISTICS}


def _numbered(gathered: dict[Key, list[Reduced]]) -> dict[Key, list[Reduced]]:
    """What was gathered, by numbers of calls: parts with one number go together."""
    found: dict[Key, list[Reduced]] = {}
    for key, parts in gathered.items():
        number = key.call.number if isinstance(key.call, Visit) else key.call
        found.setdefault(key._replace(call=number), []).extend(parts)
    return found


def _add_ratios(rows: dict[Key, Row]) -> None:
    """`ratio` of an update: its norm relative to that of the weight."""
    for key, row in rows.items():
        weight = rows.get(key._replace(kind="param"))
        if key.kind == "update" and weight is not None:
            row["ratio"] = row["l2"] / weight["l2"] if weight["l2"] else float("nan")
