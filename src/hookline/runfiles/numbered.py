"""Numbered: rows of tables by their numbers, which have no gaps; behind damage they are asked for one by one."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from hookline.errors import RunError, printable
from hookline.runfiles.opening import LONG, SHORT, Source
from hookline.runfiles.schema import checksum

UNREADABLE = {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_TOOBIG, sqlite3.SQLITE_MISMATCH}
"""What SQLite says of damage; of other errors (busy, no access) it may be free later."""
MOST_MISSING = 20_000
"""Where more rows than this are missing, a file is not damaged but lies."""


class Numbered:
    """The tables of one file; `sealed`: whether each row has a checksum, its last column."""

    def __init__(self, path: Path, source: Source, *, sealed: bool) -> None:
        self.path = path
        self._source = source
        self._sealed = sealed
        self._missing = 0

    def each(self, table: str, columns: str, start: int) -> Iterator[tuple[int, tuple[Any, ...] | None]]:
        """(number, values) of the rows of a table from a number on; None for those that are damaged.

        Rows are numbered without gaps, so a row that is missing is known.
        """
        asked = f"{columns}, {'crc' if self._sealed else 'NULL'}"
        expected = start
        try:
            query = f"SELECT number, {asked} FROM {table} WHERE number >= ? ORDER BY number"
            longest = LONG if table == "recording" else SHORT
            for number, *values, crc in self._source.rows(query, start, longest=longest):
                if type(number) is not int or number < expected:
                    raise sqlite3.DatabaseError("rows are out of order")
                for missing in range(expected, number):
                    self._count_missing(table)
                    yield missing, None
                expected = number + 1
                yield number, tuple(values) if self.agrees(crc, number, values) else None
            return
        except sqlite3.Error as error:
            raise_unless_damage(error, self.path)
        for number in range(expected, self._last_number(table, expected) + 1):  # what lies behind the damage
            if (found := self._one(table, asked, number)) is None:
                self._count_missing(table)
            yield number, found

    def _count_missing(self, table: str) -> None:
        self._missing += 1
        if self._missing > MOST_MISSING:
            raise RunError(f"{self.path} is damaged: more than {MOST_MISSING:,} rows of {table!r} are missing.")

    def _one(self, table: str, asked: str, number: int) -> tuple[Any, ...] | None:
        try:
            found = self._source.one(f"SELECT {asked} FROM {table} WHERE number = ?", number)
        except sqlite3.Error as error:
            raise_unless_damage(error, self.path)
            return None
        return found[:-1] if found and self.agrees(found[-1], number, found[:-1]) else None

    def agrees(self, crc: Any, number: int, values: Any) -> bool:
        try:
            return not self._sealed or crc == checksum(number, *values)
        except TypeError:  # bytes, where only numbers and texts are
            return False

    def _last_number(self, table: str, start: int) -> int:
        """The largest number of a damaged table, as far as it can be found."""
        with suppress(sqlite3.DatabaseError):
            (last,) = self._source.one(f"SELECT max(number) FROM {table}") or (None,)
            if type(last) is int and last < self.path.stat().st_size:
                return last
        low, high = start, start + 1
        while self._may_have(table, high):
            low, high = high, 2 * high + 1
            if high > self.path.stat().st_size:
                raise RunError(f"{self.path} is damaged: its table {table!r} can't be read.")
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if self._may_have(table, middle) else (low, middle)
        return low

    def _may_have(self, table: str, number: int) -> bool:
        try:
            return self._source.one(f"SELECT 1 FROM {table} WHERE number = ?", number) is not None
        except sqlite3.Error as error:
            raise_unless_damage(error, self.path)
            return True


def raise_unless_damage(error: sqlite3.Error, path: Path) -> None:
    """RunError where a file can't be read for another reason than damage."""
    if not is_damage(error):
        raise RunError(f"{path} can't be read: {printable(error)}") from error


def is_damage(error: sqlite3.Error) -> bool:
    """Whether SQLite says that the file is damaged."""
    return getattr(error, "sqlite_errorcode", sqlite3.SQLITE_CORRUPT) & 0xFF in UNREADABLE
