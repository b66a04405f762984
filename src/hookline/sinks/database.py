"""Database: one SQLite file of a run, as one process or rank writes it."""

from __future__ import annotations

import json
import shutil
import sqlite3
import tempfile
import threading
from contextlib import closing, suppress
from pathlib import Path
from typing import Any, NamedTuple

from hookline.errors import RunError
from hookline.sinks.columns import more_of
from hookline.sinks.frames import IDENTITY, Block, Row, pack, unpack, unpack_columns
from hookline.sinks.journal import SUFFIXES, connected, why_no_wal

VERSION = 2
"""Format 1 had histograms in the blocks of statistics, and no recordings."""
GROUP = 16
"""Series are stored in groups of so many: a reader of one site then opens few blocks."""

SCHEMA = """
CREATE TABLE meta (name TEXT PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE series (number INTEGER PRIMARY KEY, site TEXT, kind TEXT, call INTEGER, mode TEXT);
CREATE TABLE frame (number INTEGER PRIMARY KEY, series_group INTEGER, first INTEGER, last INTEGER, block BLOB,
    hists BLOB);
CREATE INDEX frame_of_group ON frame (series_group);
CREATE TABLE recording (number INTEGER PRIMARY KEY, file TEXT, step INTEGER, made TEXT, sites TEXT);
"""


class Kept(NamedTuple):
    """A recording in a run: its file in the run's folder, the step, when it was made, and which sites fired."""

    file: str
    step: int | None
    made: str
    sites: list[str]


class Writer:
    """Writes to a file of this process's own, a new one or one that it has written before."""

    def __init__(self, path: Path, meta: dict[str, Any], *, new: bool = True) -> None:
        self._lock = threading.Lock()  # rows come from a thread, recordings from the one that trains
        self._series: dict[tuple[Any, ...], int] = {}
        why = why_no_wal(path.parent)
        if new:
            journal = f"rollback, since WAL does not work here: {why}" if why else "wal"
            self._make(path, {**meta, "journal": journal, "version": VERSION})
        self._connection = connected(path)
        self._connection.execute(f"PRAGMA journal_mode={'DELETE' if why else 'WAL'}")
        self._connection.execute("PRAGMA synchronous=NORMAL")

    def _make(self, path: Path, meta: dict[str, Any]) -> None:
        """The file with its tables and facts, at once: a reader never finds half of them."""
        temporary = path.with_name(f".{path.name}.part")
        try:
            self._connection = connected(temporary)
            with closing(self._connection):
                self._connection.executescript(SCHEMA)
                self.meta(meta)
            temporary.replace(path)
        finally:
            for suffix in SUFFIXES:
                Path(f"{temporary}{suffix}").unlink(missing_ok=True)

    def meta(self, values: dict[str, Any]) -> None:
        """Sets facts of the run."""
        pairs = [(name, json.dumps(value)) for name, value in values.items()]
        with self._lock:
            self._connection.executemany("INSERT OR REPLACE INTO meta VALUES (?, ?)", pairs)

    def write(self, rows: list[Row]) -> None:
        """Writes rows in one transaction: they are all there afterwards, or none is."""
        with self._lock:
            self._write(rows)

    def add_recording(self, kept: Kept) -> None:
        """Notes a recording whose file is there, whole."""
        values = (kept.file, kept.step, kept.made, json.dumps(kept.sites))
        with self._lock:
            self._connection.execute("INSERT INTO recording (file, step, made, sites) VALUES (?, ?, ?, ?)", values)

    def recordings(self) -> int:
        """How many recordings are noted."""
        with self._lock:
            (count,) = self._connection.execute("SELECT COUNT(*) FROM recording").fetchone()
        return int(count)

    def _write(self, rows: list[Row]) -> None:
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
                    "INSERT INTO frame (series_group, first, last, block, hists) VALUES (?, ?, ?, ?, ?)",
                    (group, min(steps), max(steps), *pack(some, numbers)),
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
        """Closes the file, without a log unless somebody is reading: it can then be read anywhere."""
        with suppress(sqlite3.Error):
            self._connection.execute("PRAGMA busy_timeout=0")
            self._connection.execute("PRAGMA journal_mode=DELETE")
        self._connection.close()


class Reader:
    """Reads one file, also while it is written; by one thread at a time."""

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
        self._hists = "hists" if self.meta.get("version", 0) > 1 else "NULL"

    def _opened(self) -> sqlite3.Connection:
        try:
            return _checked(_connected(f"{self.path.absolute().as_uri()}?mode=ro"))
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode == sqlite3.SQLITE_BUSY:
                raise
            if not any(Path(f"{self.path}{suffix}").exists() for suffix in ("-wal", "-journal")):
                # A folder that can't be written to has no place for SQLite's shared memory.
                return _connected(f"{self.path.absolute().as_uri()}?mode=ro&immutable=1")
        # The process died while it wrote, and SQLite has to mend the file: a copy, since nothing here is ours.
        with tempfile.TemporaryDirectory(prefix="hookline-") as folder:
            for suffix in ("-wal", "-journal", ""):
                if Path(f"{self.path}{suffix}").exists():
                    shutil.copyfile(f"{self.path}{suffix}", Path(folder) / f"{self.path.name}{suffix}")
            mended = _connected("file::memory:")
            with closing(_checked(sqlite3.connect(Path(folder) / self.path.name))) as copy:
                copy.backup(mended)
            return mended

    def recordings(self) -> list[Kept]:
        """What is noted of recordings, in the order in which they were made."""
        if self.meta.get("version", 0) < 2:
            return []
        found = self._all("SELECT file, step, made, sites FROM recording ORDER BY number")
        return [Kept(file, step, made, json.loads(sites)) for file, step, made, sites in found]

    def series(self) -> dict[int, dict[str, Any]]:
        """{number: {site, kind, call, mode}}, in the order in which they first came."""
        found = self._all("SELECT number, site, kind, call, mode FROM series ORDER BY number")
        return {number: dict(zip(IDENTITY, rest, strict=True)) for number, *rest in found}

    def rows(self, wanted: set[int], first: int | None = None, last: int | None = None) -> list[tuple[int, Row]]:
        """The rows of these series, in the order in which they were written, between two steps."""
        rows: list[tuple[int, Row]] = []
        for group in sorted({number // GROUP for number in wanted}):
            blocks = self._all(
                f"SELECT block, {self._hists} FROM frame WHERE series_group = ? AND last >= ? AND first <= ?"
                " ORDER BY number",
                (group, -(2**62) if first is None else first, 2**62 if last is None else last),
            )
            for block in blocks:
                rows += [(number, row) for number, row in unpack(Block(*block)) if number in wanted]
        return [
            (number, row)
            for number, row in rows
            if (first is None or row["step"] >= first) and (last is None or row["step"] <= last)
        ]

    def index(self, after: int) -> list[tuple[int, int, int, int]]:
        """(number, group of series, first step, last step) of the frames behind number `after`, unread."""
        return self._all(
            "SELECT number, series_group, first, last FROM frame WHERE number > ? ORDER BY number", (after,)
        )

    def frames(
        self, after: int, limit: int, group: int | None = None, *, hists: bool = True
    ) -> list[tuple[int, int, Block]]:
        """(number, group of series, block) of the frames behind number `after`, in the order of writing.

        Of one group, if it is given; their histograms come with these only, and if they are wanted.
        """
        hists_too = self._hists if hists and group is not None else "NULL"
        what = f"SELECT number, series_group, block, {hists_too} FROM frame"
        if group is None:
            found = self._all(f"{what} WHERE number > ? ORDER BY number LIMIT ?", (after, limit))
        else:
            one = f"{what} WHERE series_group = ? AND number > ? ORDER BY number LIMIT ?"
            found = self._all(one, (group, after, limit))
        return [(number, of, Block(*block)) for number, of, *block in found]

    def last_frame(self) -> tuple[int, int]:
        """The number of the frame that was written last, and the largest step; 0 and -1 where there is none."""
        return self._all("SELECT COALESCE(MAX(number), 0), COALESCE(MAX(last), -1) FROM frame")[0]  # type: ignore[no-any-return]

    def steps(self) -> list[int]:
        """Every step that has a row, in order."""
        found: set[int] = set()
        for (block,) in self._all("SELECT block FROM frame"):
            found.update(unpack_columns(block)[0]["step"].tolist())
        return sorted(found)

    def more(self) -> dict[str, bool]:
        """What rows have besides the fixed columns: {name: whether it is a number}."""
        found: dict[str, bool] = {}
        last, _ = self.last_frame()
        for start in range(0, last, 1000):
            for _, _, block in self.frames(start, 1000):
                found = more_of(unpack_columns(block.stats)[1]) | found
        return found

    def _all(self, query: str, values: tuple[Any, ...] = ()) -> list[Any]:
        try:
            return self._connection.execute(query, values).fetchall()
        except sqlite3.Error as error:
            raise RunError(f"{self.path} can't be read: {error}") from error

    def close(self) -> None:
        self._connection.close()


def _connected(uri: str) -> sqlite3.Connection:
    """A connection for reading, which any thread may use, one at a time."""
    return sqlite3.connect(uri, uri=True, check_same_thread=False)


def _checked(connection: sqlite3.Connection) -> sqlite3.Connection:
    """The connection, after a first reading: SQLite finds out only then whether it can."""
    try:
        connection.execute("SELECT COUNT(*) FROM meta")
    except sqlite3.Error:
        connection.close()
        raise
    return connection
