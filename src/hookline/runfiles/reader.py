"""Reader: one file of a run, also while it is written. What is damaged is left out and told, the rest is read."""

from __future__ import annotations

import bisect
import sqlite3
from collections.abc import Callable, Collection, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from hookline.errors import RunError, printable
from hookline.rows import Rows, series_of
from hookline.runfiles.entries import Entry, Frame, check, histograms_of, keys_of, last_of_each, overlapping
from hookline.runfiles.facts import checked_facts, checked_recording, checked_series
from hookline.runfiles.frames import LARGEST, Block, Damaged, rows_of, unpack_columns, unpack_places, unseal
from hookline.runfiles.numbered import Numbered, is_damage, raise_unless_damage
from hookline.runfiles.opening import LONG, Source
from hookline.runfiles.schema import GROUP, META, VERSION, Format, StoredRecording, checksum, format_of
from hookline.tables import more_of

MOST_FACTS = 10_000
MOST_TOLD = 1000
Made = TypeVar("Made")
ASK_VERSION = "SELECT value FROM meta WHERE name = 'version'"


class Reader:
    """Reads one file; by one thread at a time.

    `damage` tells what could not be read, a sentence each, and grows while reading.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.damage: list[str] = []
        self._entries: list[Entry] = []
        self._groups: dict[int, list[Entry]] = {}
        self._next = 1
        self._series: dict[int, dict[str, Any]] = {}
        self._next_series = 0
        self._told: set[str] = set()
        try:
            self._source = Source(path)
        except (sqlite3.Error, OSError) as error:
            raise RunError(f"{path} is not a file of a hookline run, or is damaged: {printable(error)}") from error
        try:
            self._format = self._known_format()
            self._tables = Numbered(path, self._source, sealed=self._format.sealed)
            self.meta = self._facts(self._format.sealed)
        except BaseException:
            self._source.close()
            raise

    def recordings(self) -> list[StoredRecording]:
        """What is noted of recordings, in the order in which they were made."""
        if not self._format.recordings:
            return []
        found = self._tables.each("recording", "file, step, made, sites", 1)
        return [one for number, values in found if (one := self._whole(checked_recording, number, values))]

    def series(self) -> dict[int, dict[str, Any]]:
        """{number: {site, kind, call, mode}}, in the order in which they first came."""
        for number, values in self._tables.each("series", "site, kind, call, mode", self._next_series):
            self._next_series = number + 1
            if one := self._whole(checked_series, number, values):
                self._series[number] = one
        return dict(self._series)

    def rows(
        self, wanted: set[int], first: int | None = None, last: int | None = None
    ) -> Iterator[tuple[list[int], Rows]]:
        """The rows of these series between two steps, as written, and the number of each one's series."""
        series = {number: series_of(one) for number, one in self.series().items() if number in wanted}
        for frame, places in self.parts(wanted, first, last, hists=True):
            assert frame.hists is not None
            rows = rows_of(frame.columns, frame.extra, frame.hists, series, self.meta.get("rank", 0), places)
            yield frame.columns["series"][places].tolist(), rows

    def parts(
        self, wanted: set[int], first: int | None = None, last: int | None = None, *, hists: bool = False
    ) -> Iterator[tuple[Frame, Any]]:
        """The frames that have rows of these series between two steps, and at which places these are.

        Of a row that was written twice, a step of a run that goes on say, only what was written last counts.
        """
        self._look()
        low, high = -LARGEST if first is None else first, LARGEST if last is None else last
        for group in sorted({number // GROUP for number in wanted}):
            is_wanted = np.asarray([group * GROUP + place in wanted for place in range(GROUP)])
            entries = [one for one in self._groups.get(group, []) if one.first <= high and one.last >= low]
            older = self._written_again(entries)
            for entry in entries:
                if (frame := self._frame(entry, hists)) is not None:
                    steps = frame.columns["step"]
                    mine = is_wanted[frame.columns["series"] % GROUP] & (steps >= low) & (steps <= high)
                    mine &= last_of_each(keys_of(frame))
                    if entry.number in older:
                        mine &= ~older[entry.number]
                    yield frame, np.flatnonzero(mine)

    def _written_again(self, entries: list[Entry]) -> dict[int, Any]:
        """By the numbers of frames: which of their rows a later frame has too. Most often there is none."""
        older, newer = overlapping(entries)
        seen: set[int] = set()
        found: dict[int, Any] = {}
        for entry in reversed(entries if older else []):
            if entry.number not in older | newer or (frame := self._frame(entry, False)) is None:
                continue
            keys = keys_of(frame).tolist()
            if entry.number in older:
                found[entry.number] = np.asarray([key in seen for key in keys])
            if entry.number in newer:
                seen.update(keys)
        return found

    def index(self, after: int) -> list[Entry]:
        """What is known of the frames behind number `after`, unread."""
        self._look()
        return self._entries[bisect.bisect_right(self._entries, after, key=lambda one: one.number) :]

    def frames(self, after: int, limit: int, group: int | None = None, *, hists: bool = True) -> list[Frame]:
        """Up to `limit` frames behind number `after`, in the order of writing; none where the rest is damaged.

        Of one group, if it is given; their histograms come with these only, and if they are asked for.
        """
        self._look()
        entries = self._entries if group is None else self._groups.get(group, [])
        found: list[Frame] = []
        for entry in entries[bisect.bisect_right(entries, after, key=lambda one: one.number) :]:
            if (frame := self._frame(entry, hists and group is not None)) is not None:
                found.append(frame)
                if len(found) == limit:
                    break
        return found

    def last_frame(self) -> tuple[int, int]:
        """The number of the frame that was written last, and the largest step; 0 and -1 where there is none."""
        self._look()
        steps = [one.last for one in self._entries]
        return (self._entries[-1].number, max(steps)) if steps else (0, -1)

    def glance_at_last_step(self) -> int:
        """The largest step as one frame tells it, without a look at the others; -1 where there is none."""
        query = "SELECT number, series_group, first, last, rows, crc FROM frame ORDER BY last DESC LIMIT 1"
        if self._format.sealed:
            with suppress(sqlite3.Error):
                number, *values, crc = self._source.one(query) or (0, None)
                last = values[2] if number else None
                if type(last) is int and abs(last) <= LARGEST and self._tables.agrees(crc, number, values):
                    return last
        return self.last_frame()[1]

    def steps(self, leaving_out: Collection[int] = ()) -> list[int]:
        """Every step that has a row, in order; rows of series that are left out don't count.

        Frames that were written together have the same steps, as a rule: where one has every step from its first
        to its last, others with these ends have none besides and are not read.
        """
        self._look()
        found: set[int] = set()
        gapless: set[tuple[int, int]] = set()
        for entry in self._entries:
            ends = entry.first, entry.last
            if ends not in gapless:
                steps = self._steps_of(entry, leaving_out)
                found |= steps
                if len(steps) == entry.last - entry.first + 1:
                    gapless.add(ends)
        return sorted(found)

    def count(self) -> int:
        """How many rows there are."""
        self._look()
        known = [entry.rows for entry in self._entries]
        if None in known or any(overlapping(entries)[0] for entries in self._groups.values()):
            return sum(len(places) for _, places in self.parts(set(self.series())))
        return sum(rows for rows in known if rows is not None)

    def more(self) -> dict[str, bool]:
        """What rows have besides the fixed columns: {name: whether it is a number}."""
        return more_of(row for frame in self._every() for row in frame.extra)

    def close(self) -> None:
        self._source.close()

    def _every(self) -> Iterator[Frame]:
        self._look()
        for entry in self._entries:
            if (frame := self._frame(entry, False)) is not None:
                yield frame

    def _known_format(self) -> Format:
        """The format of the file by its tables; RunError where they are none of a run's."""
        known, version = None, ""
        try:
            tables = {sql for (sql,) in self._source.rows("SELECT sql FROM sqlite_master") if sql is not None}
            known = format_of(tables)
            (version,) = (META in tables and self._source.one(ASK_VERSION)) or ("",)
        except sqlite3.Error as error:
            if known is None or not is_damage(error):
                raise RunError(
                    f"{self.path} is not a file of a hookline run, or is damaged: {printable(error)}"
                ) from error
        told = str(version)[:10]
        if told.isdecimal() and int(told) > VERSION:
            raise RunError(
                f"{self.path} was written by a newer hookline (format {told}, this one reads up to {VERSION}). "
                "Upgrade hookline to read it."
            )
        if known is None:
            raise RunError(
                f"{self.path} is not a file of a hookline run, or is damaged: its tables are not those of a run."
            )
        return known

    def _facts(self, sealed: bool) -> dict[str, Any]:
        """The facts of the run, without those that are damaged."""
        found: dict[str, str] = {}
        seals: dict[str, int] = {}
        size = 0
        try:
            with self._source.at_once():
                for name, value in self._source.rows(
                    f"SELECT name, value FROM meta LIMIT {MOST_FACTS}", longest=LONG
                ):
                    found[str(name)] = value
                    size += len(str(value))
                    if size > LONG:
                        raise RunError(f"{self.path} is no run of hookline's: its facts are larger than 128 MB.")
                if sealed:
                    seals = dict(self._source.rows(f"SELECT name, crc FROM seal LIMIT {MOST_FACTS}"))
        except sqlite3.Error as error:
            raise_unless_damage(error, self.path)
            self._tell(f"the facts of the run can't all be read ({printable(error)})")
        if sealed:
            for name in seals.keys() - found.keys():
                self._tell(f"the fact {str(name)[:100]!r} is missing")
            for name in [name for name, value in found.items() if seals.get(name) != checksum(name, str(value))]:
                self._tell(f"the fact {name[:100]!r} is damaged and left out")
                del found[name]
        facts, wrong = checked_facts(found, self.path.name)
        for what in wrong:
            self._tell(what)
        return facts

    def _look(self) -> None:
        """Learns of the frames that were written since."""
        columns = "series_group, first, last, rows" if self._format.sealed else "series_group, first, last, NULL"
        for number, values in self._tables.each("frame", columns, self._next):
            self._next = number + 1
            if values is not None and _are_whole(*values[:3]):
                group, first, last, rows = values
                entry = Entry(number, group, first, last, rows if type(rows) is int and rows > 0 else None)
            elif (found := self._entry_by_block(number)) is not None:
                entry = found
            else:
                latest = self._entries[-1].last if self._entries else -1
                self._tell(
                    f"frame {number} is damaged and left out; its steps, after step {latest}, can't be told"
                )
                continue
            self._entries.append(entry)
            self._groups.setdefault(entry.group, []).append(entry)

    def _entry_by_block(self, number: int) -> Entry | None:
        """What a frame's own bytes tell of it, where what was noted of it is damaged."""
        try:
            columns, _ = unpack_columns(self._block(number, hists=False).stats)
            series, steps = columns["series"], columns["step"]
            if self._format.sealed and len(series):
                entry = Entry(number, int(series[0]) // GROUP, int(steps.min()), int(steps.max()), len(series))
                check(entry, columns)
                return entry
        except Damaged:
            pass
        except sqlite3.Error as error:
            raise_unless_damage(error, self.path)
        return None

    def _frame(self, entry: Entry, hists: bool) -> Frame | None:
        """A frame whose numbers fit together; None where it is damaged, which is told."""

        def made() -> Frame:
            block = self._block(entry.number, hists=hists)
            columns, extra = unpack_columns(block.stats)
            self._check(entry, columns)
            return Frame(
                entry.number, entry.group, columns, extra, histograms_of(block, len(extra)) if hists else None
            )

        return self._unless_damaged(entry, made)

    def _steps_of(self, entry: Entry, leaving_out: Collection[int]) -> set[int]:
        """The steps of a frame's rows; none where it is damaged, which is told."""
        # Without a checksum, damage shows only where a frame is unpacked to its end.
        columns_of = unpack_places if self._format.sealed else lambda stats: unpack_columns(stats)[0]

        def made() -> set[int]:
            columns = columns_of(self._block(entry.number, hists=False).stats)
            self._check(entry, columns)
            kept = ~np.isin(columns["series"], list(leaving_out)) if leaving_out else slice(None)
            return set(columns["step"][kept].tolist())

        return self._unless_damaged(entry, made) or set()

    def _unless_damaged(self, entry: Entry, made: Callable[[], Made]) -> Made | None:
        """What is made of a frame; None where it is damaged, which is told."""
        try:
            return made()
        except Damaged as error:
            why = printable(error)
        except sqlite3.Error as error:
            raise_unless_damage(error, self.path)
            why = printable(error)
        steps = f"step {entry.first}" if entry.first == entry.last else f"steps {entry.first} to {entry.last}"
        self._tell(f"frame {entry.number}, with rows of {steps}, is damaged and left out: {why}")
        return None

    def _check(self, entry: Entry, columns: dict[str, Any]) -> None:
        """Damaged where rows are not those announced; tells of rows whose series is not there."""
        check(entry, columns)
        numbers = set(columns["series"].tolist())
        if not numbers <= self._series.keys() and not numbers <= self.series().keys():
            self._tell(f"frame {entry.number} has rows of a series that is missing; they are left out")

    def _block(self, number: int, *, hists: bool) -> Block:
        """The bytes of a frame, whose checksums agree; with those of its histograms, or without."""
        found = self._source.one(self._format.blocks if hists else self._format.stats, number)
        if found is None:
            raise Damaged("it is missing")
        stats, more = found
        if not isinstance(stats, bytes) or not isinstance(more, (bytes, type(None))):
            raise Damaged("it is not made of bytes")
        if not self._format.sealed:
            return Block(stats, more)
        return Block(unseal(stats, f"{number} stats"), None if more is None else unseal(more, f"{number} hists"))

    def _whole(self, made: Any, number: int, values: tuple[Any, ...] | None) -> Any:
        """What `made` makes of a row; None where it is damaged, which is told."""
        try:
            if values is None:
                raise Damaged("its row is damaged")
            return made(*values)
        except Damaged as error:
            what = "recording" if made is checked_recording else "series"
            self._tell(f"{what} {number} is left out: {printable(error)}")
            return None

    def _tell(self, what: str) -> None:
        told = f"{self.path}: {what}."
        if told not in self._told and len(self._told) < MOST_TOLD:
            self._told.add(told)
            self.damage.append(told)


def _are_whole(*values: Any) -> bool:
    """Whether these are whole numbers that are exact everywhere."""
    return set(map(type, values)) == {int} and min(values) >= -LARGEST and max(values) <= LARGEST
