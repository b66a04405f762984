"""Database: one SQLite file of a run, as one process or rank writes it (`reader.py` reads it)."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hookline import bins
from hookline.alone import Alone, one_at_a_time
from hookline.errors import InvalidArgument
from hookline.rows import Row, Rows, Series
from hookline.runfiles.frames import Block, pack, seal
from hookline.runfiles.journal import SUFFIXES, connected, why_no_wal
from hookline.runfiles.rollback import check_journal
from hookline.runfiles.schema import FORMATS, GROUP, VERSION, StoredRecording, checksum

ROWS, BYTES = 4096, 16 << 20
"""A frame has at most so many rows, and fewer where their bytes would be more: damage then costs little."""


class Writer:
    """Writes to a file of this process's own: a new one with the facts `meta`, or one that is there (None)."""

    def __init__(self, path: Path, meta: dict[str, Any] | None) -> None:
        self._alone = Alone(lasting=False)  # rows come from a thread, recordings from the one that trains
        self._series: dict[Series, int] = {}
        why = why_no_wal(path.parent)
        journal_file = Path(f"{path}-journal")
        if meta is not None:  # nothing that lies beside a new file can be its own
            _remove_beside(path)
        elif journal_file.exists():
            check_journal(journal_file)
        if meta is not None:
            journal = f"rollback, since WAL does not work here: {why}" if why else "wal"
            self._make(path, {**meta, "journal": journal, "version": VERSION})
        self._open(path, "DELETE" if why else "WAL")
        if meta is None:
            found = self._connection.execute("SELECT number, site, kind, call, mode FROM series")
            self._series = {(site, kind, call, mode): number for number, site, kind, call, mode in found}

    def _open(self, path: Path, journal: str) -> None:
        self._connection = connected(path)
        self._connection.execute(f"PRAGMA journal_mode={journal}")
        self._connection.execute("PRAGMA synchronous=NORMAL")

    @one_at_a_time
    def move(self, path: Path) -> None:
        """Goes on in a file at `path`, with all that was written: SQLite has that also where the file is gone."""
        temporary = path.with_name(f".{path.name}.part")
        (journal,) = self._connection.execute("PRAGMA journal_mode").fetchone()
        with closing(connected(temporary)) as copy:
            self._connection.backup(copy)
            copy.execute("PRAGMA journal_mode=DELETE")
        self._connection.close()  # before the new file is there: it removes a log of that name
        for suffix in SUFFIXES[1:]:  # of the old file, which SQLite would take for those of the new one
            Path(f"{path}{suffix}").unlink(missing_ok=True)
        temporary.replace(path)
        self._open(path, journal)

    def _make(self, path: Path, meta: dict[str, Any]) -> None:
        """The file with its tables and facts, at once: a reader never finds half of them."""
        temporary = path.with_name(f".{path.name}.part")
        try:
            _remove(temporary)
            self._connection = connected(temporary)
            with closing(self._connection):
                self._connection.executescript(";".join(FORMATS[VERSION].tables))
                self.meta(meta)
            temporary.replace(path)
        finally:
            _remove(temporary)

    @one_at_a_time
    def meta(self, values: dict[str, Any]) -> None:
        """Sets facts of the run."""
        texts = {name: json.dumps(value) for name, value in values.items()}
        seals = [(name, checksum(name, text)) for name, text in texts.items()]
        self._connection.execute("BEGIN")
        try:
            self._connection.executemany("INSERT OR REPLACE INTO meta VALUES (?, ?)", texts.items())
            self._connection.executemany("INSERT OR REPLACE INTO seal VALUES (?, ?)", seals)
            self._connection.execute("COMMIT")
        except BaseException:
            self._roll_back()
            raise

    @one_at_a_time
    def forget(self, *names: str) -> None:
        """Takes facts away that hold no longer."""
        self._connection.execute("BEGIN")
        try:
            for table in ("meta", "seal"):
                self._connection.executemany(f"DELETE FROM {table} WHERE name = ?", [(one,) for one in names])
            self._connection.execute("COMMIT")
        except BaseException:
            self._roll_back()
            raise

    @one_at_a_time
    def write(self, rows: Rows | list[Row]) -> None:
        """Writes rows in one transaction: they are all there afterwards, or none is."""
        rows = Rows.of(rows)
        if rows.hists.size not in (0, bins.COUNT):
            raise InvalidArgument(f"a row's histogram has {rows.hists.size} bins; expected {bins.COUNT}.")
        self._write(rows)

    @one_at_a_time
    def add_recording(self, kept: StoredRecording) -> None:
        """Notes a recording whose file is there, whole."""
        values = (kept.file, kept.step, kept.made, json.dumps(kept.sites))
        number = self._next("recording")
        sealed = (number, *values, checksum(number, *values))
        self._connection.execute("INSERT INTO recording VALUES (?, ?, ?, ?, ?, ?)", sealed)

    def _write(self, rows: Rows) -> None:
        execute = self._connection.execute
        series = dict(self._series)
        execute("BEGIN")
        try:
            numbers = self._numbers(rows.series)
            places = _last_places(numbers, rows.steps)
            groups = numbers[places] // GROUP
            number = self._next("frame")
            for group in np.unique(groups).tolist():
                for some, block in _blocks(rows, numbers, places[groups == group]):
                    steps = rows.steps[some]
                    values = (number, group, int(steps.min()), int(steps.max()), len(some))
                    execute("INSERT INTO frame VALUES (?, ?, ?, ?, ?, ?)", (*values, checksum(*values)))
                    stats = seal(block.stats, f"{number} stats")
                    hists = None if block.hists is None else seal(block.hists, f"{number} hists")
                    execute("INSERT INTO block VALUES (?, ?, ?)", (number, stats, hists))
                    number += 1
            execute("COMMIT")
        except BaseException:
            self._series = series
            self._roll_back()
            raise

    def _next(self, table: str) -> int:
        """The number of the next row of a table: they are numbered without gaps."""
        (last,) = self._connection.execute(f"SELECT max(number) FROM {table}").fetchone()
        return int(last or 0) + 1

    def _roll_back(self) -> None:
        if self._connection.in_transaction:  # a full disk has SQLite roll back by itself
            self._connection.execute("ROLLBACK")

    def _numbers(self, keys: Sequence[Series]) -> NDArray[np.int64]:
        """The number of each row's series; those that are new are written."""
        for key in dict.fromkeys(key for key in keys if key not in self._series):
            values = (len(self._series), *key)
            self._connection.execute("INSERT INTO series VALUES (?, ?, ?, ?, ?, ?)", (*values, checksum(*values)))
            self._series[key] = values[0]
        return np.fromiter(map(self._series.__getitem__, keys), np.int64, len(keys))

    def close(self) -> None:
        """Closes the file, without a log unless somebody is reading: it can then be read anywhere."""
        with suppress(sqlite3.Error):
            self._connection.execute("PRAGMA busy_timeout=0")
            self._connection.execute("PRAGMA journal_mode=DELETE")
        self._connection.close()


def _last_places(numbers: NDArray[np.int64], steps: NDArray[np.int64]) -> NDArray[np.int64]:
    """The places of the rows that count, in order: of a step that comes twice in a series, the last one."""
    order = np.lexsort((steps, numbers))  # stable: what came later is later among equals
    again = (np.diff(numbers[order]) == 0) & (np.diff(steps[order]) == 0)
    return np.delete(np.arange(len(order)), order[:-1][again])


def _blocks(rows: Rows, numbers: NDArray[np.int64], places: NDArray[np.int64]) -> Iterator[tuple[Any, Block]]:
    """The rows at some places in blocks of a size to be read at once; each block with the places of its rows."""
    for start in range(0, len(places), ROWS):
        yield from _split(rows, numbers, places[start : start + ROWS])


def _split(rows: Rows, numbers: NDArray[np.int64], places: NDArray[np.int64]) -> Iterator[tuple[Any, Block]]:
    block, half = pack(rows.at(places), numbers[places].tolist()), len(places) // 2
    if half and block.size > BYTES:
        yield from _split(rows, numbers, places[:half])
        yield from _split(rows, numbers, places[half:])
    else:
        yield places, block


def _remove(path: Path) -> None:
    path.unlink(missing_ok=True)
    _remove_beside(path)


def _remove_beside(path: Path) -> None:
    for suffix in SUFFIXES[1:]:
        Path(f"{path}{suffix}").unlink(missing_ok=True)
