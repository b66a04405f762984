"""Database: one SQLite file of a run, as one process or rank writes it."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path
from typing import Any

from hookline.errors import RunError
from hookline.sinks.frames import IDENTITY, Row, pack, unpack

VERSION = 1
GROUP = 16
"""Series are stored in groups of so many: a reader of one site then opens few blocks."""

SCHEMA = """
CREATE TABLE meta (name TEXT PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE series (number INTEGER PRIMARY KEY, site TEXT, kind TEXT, call INTEGER, mode TEXT);
CREATE TABLE frame (number INTEGER PRIMARY KEY, series_group INTEGER, first INTEGER, last INTEGER, block BLOB);
CREATE INDEX frame_of_group ON frame (series_group);
"""


class Writer:
    """Writes rows to a new file; used by one thread."""

    def __init__(self, path: Path, meta: dict[str, Any]) -> None:
        self._connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
        execute = self._connection.execute
        # WAL lets others read while this writes; where the file system can't do it, SQLite answers with
        # another mode and goes on with that one.
        execute("PRAGMA journal_mode=WAL")
        execute("PRAGMA synchronous=NORMAL")
        self._connection.executescript(SCHEMA)
        self._series: dict[tuple[Any, ...], int] = {}
        self.meta({**meta, "version": VERSION})

    def meta(self, values: dict[str, Any]) -> None:
        """Sets facts of the run."""
        pairs = [(name, json.dumps(value)) for name, value in values.items()]
        self._connection.executemany("INSERT OR REPLACE INTO meta VALUES (?, ?)", pairs)

    def write(self, rows: list[Row]) -> None:
        """Writes rows in one transaction: they are all there afterwards, or none is."""
        execute = self._connection.execute
        series = dict(self._series)
        execute("BEGIN")
        try:
            groups: dict[int, tuple[list[Row], list[int]]] = {}
            for row in rows:
                number = self._number(tuple(row[name] for name in IDENTITY))
                some, numbers = groups.setdefault(number // GROUP, ([], []))
                some.append(row)
                numbers.append(number)
            for group, (some, numbers) in groups.items():
                steps = [row["step"] for row in some]
                execute(
                    "INSERT INTO frame (series_group, first, last, block) VALUES (?, ?, ?, ?)",
                    (group, min(steps), max(steps), pack(some, numbers)),
                )
            execute("COMMIT")
        except BaseException:
            self._series = series
            if self._connection.in_transaction:  # a full disk has SQLite roll back by itself
                execute("ROLLBACK")
            raise

    def _number(self, key: tuple[Any, ...]) -> int:
        if key not in self._series:
            self._series[key] = number = len(self._series)
            self._connection.execute("INSERT INTO series VALUES (?, ?, ?, ?, ?)", (number, *key))
        return self._series[key]

    def close(self) -> None:
        self._connection.close()


class Reader:
    """Reads one file, also while it is written."""

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            self._connection = self._opened()
            self.meta = {name: json.loads(value) for name, value in self._connection.execute("SELECT * FROM meta")}
        except (sqlite3.Error, json.JSONDecodeError) as error:
            raise RunError(f"{path} is not a file of a hookline run, or is damaged: {error}") from error
        if self.meta.get("version", 0) > VERSION:
            raise RunError(
                f"{path} was written by a newer hookline (format {self.meta['version']}, this one reads up to "
                f"{VERSION}). Upgrade hookline to read it."
            )

    def _opened(self) -> sqlite3.Connection:
        uri = f"{self.path.absolute().as_uri()}?mode=ro"
        try:
            connection = sqlite3.connect(uri, uri=True)
            connection.execute("SELECT COUNT(*) FROM meta")
            return connection
        except sqlite3.OperationalError:
            # A folder that can't be written to has no place for SQLite's shared memory.
            return sqlite3.connect(f"{uri}&immutable=1", uri=True)

    def series(self) -> dict[int, dict[str, Any]]:
        """{number: {site, kind, call, mode}}, in the order in which they first came."""
        found = self._all("SELECT number, site, kind, call, mode FROM series ORDER BY number")
        return {number: dict(zip(IDENTITY, rest, strict=True)) for number, *rest in found}

    def rows(self, wanted: set[int], first: int | None = None, last: int | None = None) -> list[tuple[int, Row]]:
        """The rows of these series, in the order in which they were written, between two steps."""
        rows: list[tuple[int, Row]] = []
        for group in sorted({number // GROUP for number in wanted}):
            blocks = self._all(
                "SELECT block FROM frame WHERE series_group = ? AND last >= ? AND first <= ? ORDER BY number",
                (group, -(2**62) if first is None else first, 2**62 if last is None else last),
            )
            for (block,) in blocks:
                rows += [(number, row) for number, row in unpack(block) if number in wanted]
        return [
            (number, row)
            for number, row in rows
            if (first is None or row["step"] >= first) and (last is None or row["step"] <= last)
        ]

    def steps(self) -> list[int]:
        """Every step that has a row, in order; read from one group, since a step has rows in all."""
        found: set[int] = set()
        for group in {number // GROUP for number in self.series()}:
            for (block,) in self._all("SELECT block FROM frame WHERE series_group = ?", (group,)):
                found.update(row["step"] for _, row in unpack(block))
        return sorted(found)

    def _all(self, query: str, values: tuple[Any, ...] = ()) -> list[Any]:
        try:
            return self._connection.execute(query, values).fetchall()
        except sqlite3.Error as error:
            raise RunError(f"{self.path} can't be read: {error}") from error

    def close(self) -> None:
        self._connection.close()
