"""Schema: the tables of a run's file, in every format that was ever written, word for word.

A file whose tables are others is no run: a view or a trigger in place of a table could run for ever.
"""

from __future__ import annotations

import json
import zlib
from typing import Any, NamedTuple

VERSION = 3
"""Format 1 had histograms in the blocks of statistics, and no recordings; format 2 had no checksums."""
GROUP = 16
"""Series are stored in groups of so many: a reader of one site then opens few blocks."""

META = "CREATE TABLE meta (name TEXT PRIMARY KEY, value TEXT NOT NULL)"
"""The same in every format, so that an older hookline can tell that a file is too new for it."""
_SERIES = "CREATE TABLE series (number INTEGER PRIMARY KEY, site TEXT, kind TEXT, call INTEGER, mode TEXT"
_RECORDING = "CREATE TABLE recording (number INTEGER PRIMARY KEY, file TEXT, step INTEGER, made TEXT, sites TEXT"
_FRAME = "CREATE TABLE frame (number INTEGER PRIMARY KEY, series_group INTEGER, first INTEGER, last INTEGER, "
_INDEX = "CREATE INDEX frame_of_group ON frame (series_group)"


class Format(NamedTuple):
    """What a format's tables are, and where its parts are found in them."""

    tables: tuple[str, ...]
    sealed: bool
    """Whether each row has a checksum, its last column."""
    blocks: str
    """The query for the bytes of one frame, by its number."""
    stats: str
    """The same without its histograms, which then are not read from the disk."""
    recordings: bool


FORMATS = {
    1: Format(
        (META, f"{_SERIES})", f"{_FRAME}block BLOB)", _INDEX),
        sealed=False,
        blocks="SELECT block, NULL FROM frame WHERE number = ?",
        stats="SELECT block, NULL FROM frame WHERE number = ?",
        recordings=False,
    ),
    2: Format(
        (META, f"{_SERIES})", f"{_FRAME}block BLOB,\n    hists BLOB)", _INDEX, f"{_RECORDING})"),
        sealed=False,
        blocks="SELECT block, hists FROM frame WHERE number = ?",
        stats="SELECT block, NULL FROM frame WHERE number = ?",
        recordings=True,
    ),
    3: Format(
        (
            META,
            "CREATE TABLE seal (name TEXT PRIMARY KEY, crc INTEGER)",
            f"{_SERIES}, crc INTEGER)",
            f"{_FRAME}rows INTEGER, crc INTEGER)",
            "CREATE TABLE block (number INTEGER PRIMARY KEY, stats BLOB, hists BLOB)",
            f"{_RECORDING}, crc INTEGER)",
        ),
        sealed=True,
        blocks="SELECT stats, hists FROM block WHERE number = ?",
        stats="SELECT stats, NULL FROM block WHERE number = ?",
        recordings=True,
    ),
}


class StoredRecording(NamedTuple):
    """A recording in a run: its file in the run's folder, the step, when it was made, and which sites fired."""

    file: str
    step: int | None
    made: str
    sites: list[str]


def format_of(tables: set[str]) -> Format | None:
    """The format that has exactly these tables and indices; None where none has."""
    return next((known for known in FORMATS.values() if set(known.tables) == tables), None)


def checksum(*values: Any) -> int:
    """A number that tells whether these values are the ones that were written.

    >>> checksum(3, "fc") == checksum(3, "fc") != checksum(2, "fc")
    True
    """
    # Of whole numbers it is the text that json.dumps makes, in a third of the time: files have many thousands.
    whole = set(map(type, values)) == {int}
    return zlib.crc32((str(list(values)) if whole else json.dumps(values)).encode())
