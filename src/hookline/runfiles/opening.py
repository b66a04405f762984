"""Opening: a run's file for reading, which may come from anybody. Nothing is written, run or followed.

SQLite gets the file for reading only, and then plays no journal back. What a killed process left is put together
in a private copy. Only plain tables are read, by an authorizer; each answer has a bound on its work and size.
"""

from __future__ import annotations

import re
import shutil
import sqlite3
import stat
import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any

from hookline.errors import RunError
from hookline.runfiles.journal import SUFFIXES
from hookline.runfiles.rollback import check_journal, undo

NAME = re.compile(r"rank\d{1,9}-\d{1,9}\.sqlite")
TABLES = {"sqlite_master", "meta", "seal", "series", "frame", "block", "recording"}
LIMITS = {
    sqlite3.SQLITE_LIMIT_SQL_LENGTH: 10_000,
    sqlite3.SQLITE_LIMIT_COLUMN: 32,
    sqlite3.SQLITE_LIMIT_EXPR_DEPTH: 20,
    sqlite3.SQLITE_LIMIT_COMPOUND_SELECT: 2,
    sqlite3.SQLITE_LIMIT_VDBE_OP: 25_000,
    sqlite3.SQLITE_LIMIT_ATTACHED: 0,
    sqlite3.SQLITE_LIMIT_TRIGGER_DEPTH: 1,
}
SHORT, LONG = 64 << 10, 128 << 20
"""The bytes of a row with names and numbers, and of one with facts or a block, which are fetched one by one."""
AT_ONCE = 256
"""So many short rows are fetched at a time, and may together take so much work:"""
WORK, MOST_WORK = 10_000, 200
"""Instructions of SQLite between two looks, and how many looks; some ten thousand instructions are usual."""
TRIES = 5
_DEFENSIVE = getattr(sqlite3, "SQLITE_DBCONFIG_DEFENSIVE", None)  # from Python 3.12 on


def run_files(folder: Path) -> list[Path]:
    """The files of the run in a folder, without those that a process is about to make; RunError for a link.

    A name that hookline would not give is not one of them.
    """
    try:
        found = [path for path in sorted(folder.iterdir()) if NAME.fullmatch(path.name)] if folder.is_dir() else []
        return [path for path in found if not check_plain(path) or path.lstat().st_size]
    except OSError as error:
        raise RunError(f"{folder} can't be read: {error}") from error


def check_plain(path: Path) -> bool:
    """Whether there is a file of that name; RunError where it is a link, a pipe or a device."""
    try:
        mode = path.lstat().st_mode
    except FileNotFoundError:
        return False
    if stat.S_ISLNK(mode):
        raise RunError(f"{path} is a link. The files of a run are not links: copy the file it leads to here.")
    if not stat.S_ISREG(mode):
        raise RunError(f"{path} is not a file.")
    return True


@contextmanager
def _in_text() -> Iterator[None]:
    """Errors of SQLite may quote the file, and then are no text: Python has another one for that."""
    try:
        yield
    except UnicodeDecodeError as error:
        raise sqlite3.DatabaseError("its tables are damaged") from error


class Source:
    """The tables of one file, for reading; by one thread at a time."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._work = [0]
        self._connection = _opened(path, self._work)

    def rows(self, query: str, *values: Any, longest: int = SHORT) -> Iterator[tuple[Any, ...]]:
        """What a query answers, some rows at a time; none is longer than `longest`."""
        self._bound(longest)
        with _in_text(), closing(self._connection.execute(query, values)) as cursor:
            while some := cursor.fetchmany(AT_ONCE if longest == SHORT else 1):
                yield from some
                self._bound(longest)  # another query may have come between

    def one(self, query: str, *values: Any) -> tuple[Any, ...] | None:
        """The first row of the answer."""
        self._bound(LONG)
        with _in_text(), closing(self._connection.execute(query, values)) as cursor:
            row: tuple[Any, ...] | None = cursor.fetchone()
            return row

    @contextmanager
    def at_once(self) -> Iterator[None]:
        """What is asked in this block is answered as of one moment, also while somebody writes."""
        self._connection.execute("BEGIN")
        try:
            yield
        finally:
            self._connection.execute("COMMIT")

    def close(self) -> None:
        self._connection.close()

    def _bound(self, longest: int) -> None:
        self._work[0] = 0
        self._connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, longest)


def _opened(path: Path, work: list[int]) -> sqlite3.Connection:
    beside = {suffix: Path(f"{path}{suffix}") for suffix in SUFFIXES}
    there = {suffix for suffix, file in beside.items() if check_plain(file)}
    uri = path.absolute().as_uri()
    if "-shm" not in there or beside["-shm"].lstat().st_nlink == 1:  # SQLite writes to it
        try:
            return _guarded(f"{uri}?mode=ro", work)
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode & 0xFF in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_INTERRUPT):
                raise
        if not any(check_plain(beside[suffix]) for suffix in ("-wal", "-journal")):
            # A folder that can't be written to has no place for SQLite's shared memory.
            return _guarded(f"{uri}?mode=ro&immutable=1", work)
    return _mended(path, work)


def _mended(path: Path, work: list[int]) -> sqlite3.Connection:
    """A private copy, with what a process that died had written, and without what it had half-written."""
    if check_plain(journal := Path(f"{path}-journal")):
        check_journal(journal)
    with tempfile.TemporaryDirectory(prefix="hookline-", ignore_cleanup_errors=True) as folder:
        copy = Path(folder) / path.name
        for _ in range(TRIES):
            before = _states(path)
            for suffix in ("", "-wal", "-journal"):
                with suppress(FileNotFoundError):
                    shutil.copyfile(f"{path}{suffix}", f"{copy}{suffix}", follow_symlinks=False)
            if _states(path) == before:
                break
            for suffix in SUFFIXES:
                Path(f"{copy}{suffix}").unlink(missing_ok=True)
        else:
            raise RunError(f"{path} can't be read: it is written to, and others can't be kept from it meanwhile.")
        for suffix in ("", "-wal", "-journal"):
            check_plain(Path(f"{copy}{suffix}"))
        if (journal := Path(f"{copy}-journal")).exists():
            with copy.open("r+b") as file:
                undo(journal, file)
            journal.unlink()
        if Path(f"{copy}-wal").exists():  # its frames have no names in them
            with closing(_guarded(f"{copy.as_uri()}?mode=rw", work, check=False)) as writable:
                writable.execute("PRAGMA journal_mode=DELETE")
        return _guarded(f"{copy.as_uri()}?mode=ro&immutable=1", work)


def _states(path: Path) -> list[tuple[int, int, int] | None]:
    """What changes when somebody writes to the file or its journals."""
    found: list[tuple[int, int, int] | None] = []
    for suffix in ("", "-wal", "-journal"):
        try:
            told = Path(f"{path}{suffix}").lstat()
            found.append((told.st_ino, told.st_size, told.st_mtime_ns))
        except FileNotFoundError:
            found.append(None)
    return found


def _guarded(uri: str, work: list[int], *, check: bool = True) -> sqlite3.Connection:
    """A connection that runs nothing of what is in the file; with `check`, one that has read from it."""
    connection = sqlite3.connect(uri, uri=True, check_same_thread=False, timeout=30, isolation_level=None)
    try:
        for limit, most in LIMITS.items():
            connection.setlimit(limit, most)
        if _DEFENSIVE is not None:
            connection.setconfig(_DEFENSIVE, True)  # type: ignore[attr-defined,unused-ignore]
        connection.text_factory = _decoded
        for pragma in ("trusted_schema=OFF", "cell_size_check=ON", "mmap_size=0", "temp_store=MEMORY"):
            connection.execute(f"PRAGMA {pragma}")

        def too_much() -> bool:
            work[0] += 1
            return work[0] > MOST_WORK

        connection.set_progress_handler(too_much, WORK)
        work[0] = 0
        if check:  # SQLite finds out only when it reads whether it can
            connection.set_authorizer(_allowed)
            with _in_text():
                connection.execute("SELECT name FROM sqlite_master LIMIT 1").fetchall()
    except BaseException:
        connection.close()
        raise
    return connection


def _allowed(action: int, first: str | None, second: str | None, database: str | None, source: str | None) -> int:
    """Plain columns of the known tables may be read, and nothing else; `source` is a view that reads."""
    plain = action == sqlite3.SQLITE_READ and first in TABLES and source is None
    largest = action == sqlite3.SQLITE_FUNCTION and second == "max"
    always = action in (sqlite3.SQLITE_SELECT, sqlite3.SQLITE_TRANSACTION)
    return sqlite3.SQLITE_OK if plain or largest or always else sqlite3.SQLITE_DENY


def _decoded(raw: bytes) -> str:
    """Text that may be damaged: what is no UTF-8 then differs from what was written, as checksums tell."""
    return raw.decode(errors="replace")
