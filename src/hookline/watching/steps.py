"""Steps: gathers what is reduced during one step and turns it into rows when the step ends."""

from __future__ import annotations

import sys
from sys import getrefcount
from typing import Any, NamedTuple

import numpy as np

from hookline.alone import Alone
from hookline.backends.nouns import Tensor
from hookline.backends.protocol import StatsSpec
from hookline.lines import Reduced, Stats, collect, reduce, reduce_channels
from hookline.lines.columns import columns_of, histograms_of
from hookline.lines.kernel import active
from hookline.lines.reduce import words_of
from hookline.lines.registry import BASIC, find, on_tensors, values
from hookline.lines.sheet import Sheet
from hookline.reporting import report
from hookline.rows import HEADER, OF_CALLS, Row, Rows, Series
from hookline.watching.ended import EndedStep, add_besides, add_fingerprints, one_line_each

_alone = Alone()
"""A step may end in one thread while another one adds to it."""

SPARE_BYTES = 64 << 20
"""A sheet with more in it is not kept for the step after the next: so much memory is dearer than the time."""
COUNTS_EXACTLY = getattr(sys, "_is_gil_enabled", lambda: True)()
"""Whether `getrefcount` tells all references: without the GIL, other threads count their own apart."""
ONLY_HERE = 2
"""What it tells of an object that one variable refers to."""


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

    @property
    def series(self) -> Series:
        """What the row is of, once the number of its call is final."""
        site, kind, call, mode = self
        return site, kind, call.number if isinstance(call, Visit) else call, mode


class RowSpec(NamedTuple):
    """What is computed of each tensor, besides the statistics that every row has."""

    histogram: bool = True
    stats: tuple[str, ...] = ()
    channels: int | None = None
    fingerprint: bool = False


Entry = tuple[Key, int, Reduced | None]
"""A tensor of a step: what it is a part of, its line of the sheet, and its channels if they are wanted."""


class OpenStep:
    """The step under way: the sheet with its statistics, and an entry for each tensor.

    Threads append entries without a lock. When the step ends, the first `taken` of them are its own; who comes
    later finds another step in its place (`Gathered.add`).
    """

    __slots__ = ("entries", "numbers", "sheet", "taken")

    def __init__(self, sheet: Sheet) -> None:
        self.sheet = sheet
        self.entries: list[Entry] = []
        self.numbers: dict[tuple[Key, str], Any] = {}
        self.taken = 0


class Gathered:
    """The reductions of the step under way. Parts with one key, of micro-batches or of several
    tensors of one output, are merged to what one pass over all of them would give.

    The first step has room for as many tensors as are `expected`, each other one for as many as there were before.
    """

    def __init__(self, wanted: RowSpec, expected: int = 0) -> None:
        self._wanted = wanted
        found = on_tensors(wanted.stats)
        self._broken: set[str] = set()
        self._functions = {name: find(name).fn for name in wanted.stats if name not in BASIC}
        self._on_tensors = tuple(statistic.name for statistic in found)
        functions = tuple(one.fn for one in found)
        on_host = None if active() is None else words_of
        self.statistics = StatsSpec(wanted.histogram, functions, wanted.channels, on_host)
        self.step = OpenStep(Sheet(wanted.histogram, expected, wanted.fingerprint))
        self._spare: Sheet | None = None
        self._added_before = 0
        self._known: dict[Series, Series] = {}
        self._series: list[Series] = []
        """Those of the step that ended last, a series for each row."""

    def __bool__(self) -> bool:
        return bool(self.step.entries)

    @property
    def is_plain(self) -> bool:
        """Whether taps may do in C what `add` does: of a tensor no more is wanted than what the kernel tells."""
        wanted = self._wanted
        return not (self._on_tensors or wanted.fingerprint) and wanted.channels is None

    @property
    def additions(self) -> int:
        """How many tensors were reduced so far, in all steps."""
        return self._added_before + len(self.step.entries)

    def add(self, key: Key, tensor: Tensor) -> None:
        """Reduces a tensor; nothing of it is kept but a few numbers, on its own device."""
        dim = self._wanted.channels
        channels = None
        if dim is not None and key.kind in OF_CALLS and tensor.ndim > dim:
            channels = reduce_channels(tensor, dim)
        while True:
            step = self.step
            line = self._reduced(step.sheet, tensor)
            if self._is_entered(step, (key, line, channels)):
                return
            # The step ended meanwhile, in another thread: the tensor is one of the next.

    def add_copied(self, key: Key, tensor: Tensor, room: Tensor) -> bool:
        """The same of a tensor without channels; whether `room` has a copy of it now, made in the same pass."""
        if self._on_tensors:
            self.add(key, tensor)
            return False
        while True:
            step = self.step
            line, copied = step.sheet.reduce_copied(tensor, room)
            if self._is_entered(step, (key, line, None)):
                return copied

    def add_difference(self, key: Key, after: Tensor, before: Tensor) -> bool:
        """Reduces `after - before` without making it; False where it has to be made, for `add`."""
        while not self._on_tensors:
            step = self.step
            line = step.sheet.reduce_difference(after, before)
            if line is None:
                return False
            if self._is_entered(step, (key, line, None)):
                return True
        return False

    def _is_entered(self, step: OpenStep, entry: Entry) -> bool:
        """Appends the entry; whether it is one of this step, and not too late for it."""
        step.entries.append(entry)
        return self.step is step or self._is_taken(step, entry)

    def enter_late(self, step: OpenStep, entry: Entry, tensor: Tensor) -> None:
        """Where a step has ended while an entry came: it is one of that step, or the tensor one of the next."""
        if not self._is_taken(step, entry):
            self.add(entry[0], tensor)

    @_alone
    def _is_taken(self, step: OpenStep, entry: Entry) -> bool:
        """Whether an ended step has this entry, or it came too late."""
        return any(one is entry for one in step.entries[: step.taken])

    def _reduced(self, sheet: Sheet, tensor: Tensor) -> int:
        """The line of a tensor's reduction; of a user's statistics those that work on it."""
        try:
            return sheet.reduce(tensor, self._on_tensors)
        except Exception:
            if not self._on_tensors:
                raise
            return self._reduced_in_part(sheet, tensor)

    def _reduced_in_part(self, sheet: Sheet, tensor: Tensor) -> int:
        """The same, where one of the user's statistics raises: it is left out from now on."""
        line = sheet.reduce(tensor)  # it is not the tensor
        for name in self._on_tensors:
            try:
                collect([reduce(tensor, self._wanted.histogram, [name])])
            except Exception as error:
                self._leave_out(name, error)
        return sheet.reduce(tensor, self._on_tensors) if self._on_tensors else line

    def _leave_out(self, name: str, error: Exception) -> None:
        self._broken.add(name)
        self._on_tensors = tuple(other for other in self._on_tensors if other != name)
        report(f"watch: the statistic {name!r}", self._functions.get(name), error, "it is NaN from now on")

    def norms(self, kind: str) -> dict[str, float]:
        """By site, the 2-norm of the tensor of this kind that was added last in the step under way.

        As far as that is known without waiting, as in `is_nonfinite`.
        """
        step = self.step
        lines = {key.site: line for key, line, _ in list(step.entries) if key.kind == kind}
        norms = zip(lines, step.sheet.norms(list(lines.values())), strict=True)
        return {site: norm for site, norm in norms if norm is not None}

    def is_nonfinite(self) -> bool:
        """Whether a tensor of the step under way has NaN, or a gradient of a parameter Inf.

        As far as that is known without waiting: of what the kernel has reduced.
        """
        step = self.step
        nan, infinite = step.sheet.nonfinite()
        if nan or not infinite:
            return nan
        return any(line in infinite and key.kind == "param_grad" for key, line, _ in list(step.entries))

    def add_number(self, key: Key, name: str, number: Any) -> None:
        """One more column of a row; a number or a scalar tensor, read when the step ends."""
        self.step.numbers[key, name] = number

    def rows(self, step: int, rank: int) -> Rows:
        """The rows of the step, after one transfer for all of them; nothing is gathered any more."""
        ended = self._handed_over()
        rows = self._rows(ended, step, rank)
        if ended.is_nobodys and ended.sheet.nbytes(ended.size) < SPARE_BYTES:
            ended.sheet.clear()
            self._spare = ended.sheet
        return rows

    def rows_so_far(self, step: int, rank: int) -> Rows:
        """The rows that the step would have if it ended now."""
        return self._rows(self._so_far(), step, rank)

    @_alone
    def _so_far(self) -> EndedStep:
        self.step.taken = len(self.step.entries)
        return self._ended(self.step)

    @_alone
    def _handed_over(self) -> EndedStep:
        step, size = self.step, len(self.step.entries)
        sheet, self._spare = self._spare, None
        if sheet is None or not sheet.fits(size):
            sheet = Sheet(self._wanted.histogram, size, self._wanted.fingerprint)
        self.step = OpenStep(sheet)
        step.taken = len(step.entries)
        self._added_before += step.taken
        return self._ended(step)._replace(is_nobodys=COUNTS_EXACTLY and getrefcount(step) == ONLY_HERE)

    def _rows(self, ended: EndedStep, step: int, rank: int) -> Rows:
        words, extras = ended.sheet.read(ended.size)
        merged = {
            row: Stats.merged(Stats.from_words(words[line], extras.get(line)) for line in lines)
            for row, lines in (enumerate(ended.lines_of_rows()) if self._wanted.stats else ended.parts.items())
        }
        words, lines = one_line_each(words, ended, merged)
        more = [self._more(merged[row]) for row in range(len(lines))] if self._wanted.stats else [{}] * len(lines)
        rows = Rows(
            ended.series,
            np.full(len(lines), step, np.int64),
            *columns_of(words[lines, :HEADER]),
            histograms_of(words).at(lines),
            more,
            rank,
        )
        add_fingerprints(more, ended)
        add_besides(rows, more, ended)
        return rows

    def _ended(self, step: OpenStep) -> EndedStep:
        """What a step has, by the numbers of calls, which are final now: parts with one number go together.

        Where all is as it was in the step before, its series are the very list of that step.
        """
        entries = step.entries[: step.taken]
        every = [key.series for key, _, _ in entries]
        lines = [line for _, line, _ in entries]
        size = max(lines, default=-1) + 1
        numbers = {(key.series, name): number for (key, name), number in step.numbers.items()}
        if every == self._series and self._wanted.channels is None:
            return EndedStep(step.sheet, size, self._series, lines, {}, {}, numbers)
        together: dict[Series, list[int]] = {}
        channels: dict[Series, list[Reduced]] = {}
        for series, (_, line, part) in zip(every, entries, strict=True):
            together.setdefault(series, []).append(line)
            if part is not None:
                channels.setdefault(series, []).append(part)
        found = [self._known.setdefault(one, one) for one in together]
        if found != self._series:
            self._series = found
        parts = {row: lines for row, lines in enumerate(together.values()) if len(lines) > 1}
        firsts = [some[0] for some in together.values()]
        return EndedStep(step.sheet, size, self._series, firsts, parts, channels, numbers)

    def _more(self, stats: Stats) -> Row:
        """The statistics that were asked for besides; NaN for one that raises, which is told once."""
        found: Row = {}
        for name in self._functions:
            try:
                if name not in self._broken:
                    found |= values(stats, [name])
            except Exception as error:  # training goes on, whatever it is
                self._leave_out(name, error)
        return {name: found.get(name, float("nan")) for name in self._functions}
