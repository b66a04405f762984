"""Files that somebody made to do harm: what they are made of, for the tests of every reader."""

import json
import sqlite3
import struct
import zlib
from functools import cache
from pathlib import Path

import numpy as np

import hookline
from hookline.runfiles.frames import seal
from hookline.runfiles.schema import FORMATS, checksum
from tests.support import rows

MAGIC = bytes.fromhex("d9d505f920a163d7")


def row(step=0, site="fc", **more):
    """A row whose numbers tell the step."""
    return rows.row(site, step, values=(0.25 * step, -3.0), **more)


def stored(folder, steps=3, sites=("fc",)):
    """A small honest run, a frame for each step and site; its file."""
    store = hookline.RunStore(folder)
    store.open({"model": "Net", "sites": [["", "Net"], *([site, "Linear"] for site in sites)]})
    for step in range(steps):
        store._opened().write([row(step, site) for site in sites])
    store.close()
    return folder / "rank0-0000.sqlite"


def super_journal(victim: Path, pages: int, page_size: int = 4096, sector: int = 512) -> bytes:
    """A hot rollback journal without a page, whose end names `victim` as its super-journal."""
    header = MAGIC + struct.pack(">IIIII", 0, 1234, pages, sector, page_size)
    name = str(victim).encode()
    lock_page = (1 << 30) // page_size + 1
    tail = struct.pack(">I", lock_page) + name + struct.pack(">II", len(name), sum(name)) + MAGIC
    return header.ljust(sector, b"\0") + tail


def attack(folder: Path, victim: Path) -> None:
    """Makes the run in a folder one that has SQLite remove `victim` when it mends the run."""
    file = stored(folder)
    victim.write_text("precious")
    journal = super_journal(victim, file.stat().st_size // 4096)
    Path(f"{file}-journal").write_bytes(journal)


def rebuilt(file: Path, *statements: str) -> None:
    """The file with other tables."""
    with sqlite3.connect(file) as connection:
        connection.executescript(";".join(statements))
    connection.close()


def frame(file: Path, stats, *, number=1, first=0, last=0, rows=1, group=0, hists=None) -> None:
    """Puts bytes into a frame, with checksums that agree: only what they say is wrong."""
    values = (number, group, first, last, rows)
    stats, hists = (part() if callable(part) else part for part in (stats, hists))
    with sqlite3.connect(file) as connection:
        connection.execute("REPLACE INTO frame VALUES (?, ?, ?, ?, ?, ?)", (*values, checksum(*values)))
        blobs = (seal(stats, f"{number} stats"), None if hists is None else seal(hists, f"{number} hists"))
        connection.execute("REPLACE INTO block VALUES (?, ?, ?)", (number, *blobs))
    connection.close()


def fact(file: Path, name: str, value: object, text: str | None = None) -> None:
    """Sets a fact, with a checksum that agrees."""
    text = json.dumps(value) if text is None else text
    with sqlite3.connect(file) as connection:
        connection.execute("REPLACE INTO meta VALUES (?, ?)", (name, text))
        connection.execute("REPLACE INTO seal VALUES (?, ?)", (name, checksum(name, text)))
    connection.close()


def columns(count, series=0, step=0, floats=7, extra=b"", announced=None) -> bytes:
    """The bytes of statistics, of `count` rows, that announce other numbers where asked."""
    head = np.asarray([count if announced is None else announced], "<i8").tobytes()
    integers = np.zeros((6, count), "<i8")
    integers[0], integers[1] = series, step
    return zlib.compress(head + integers.tobytes() + np.zeros((floats, count), "<f8").tobytes() + extra)


def histograms(lengths, entries, size, bins=(), counts=()) -> bytes:
    head = np.asarray([len(lengths), entries, size], "<i8").tobytes()
    parts = np.asarray(lengths, "<i8").tobytes(), np.asarray(counts, "<i8").tobytes()
    return zlib.compress(head + b"".join(parts) + np.asarray(bins, "<u2").tobytes())


@cache
def bomb() -> bytes:
    """Few bytes that are more than 128 MB when they are unpacked."""
    packing = zlib.compressobj(1)
    parts = [packing.compress(bytes(1 << 20)) for _ in range(130)]
    return b"".join([*parts, packing.flush()])


TABLES = FORMATS[3].tables
ENDLESS = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n)"
SCHEMAS = {
    "an endless view as frame": (
        "DROP TABLE frame",
        f"CREATE VIEW frame AS {ENDLESS} SELECT i AS number, 0 AS series_group, 0 AS first, 0 AS last, 1 AS rows,"
        " 0 AS crc FROM n",
    ),
    "an endless view as meta": (
        "DROP TABLE meta",
        f"CREATE VIEW meta AS {ENDLESS} SELECT 'a' || i AS name, '1' AS value FROM n",
    ),
    "an endless view as series": (
        "DROP TABLE series",
        f"CREATE VIEW series AS {ENDLESS} SELECT i AS number, 'x' AS site, 'output' AS kind, 0 AS call,"
        " 'train' AS mode, 0 AS crc FROM n",
    ),
    "a view of huge blobs as block": (
        "DROP TABLE block",
        "CREATE VIEW block AS SELECT 1 AS number, zeroblob(900000000) AS stats, NULL AS hists",
    ),
    "a generated column": (
        "DROP TABLE block",
        "CREATE TABLE block (number INTEGER PRIMARY KEY, hists BLOB, stats BLOB AS (zeroblob(900000000)))",
        "INSERT INTO block (number) VALUES (1)",
    ),
    "a trigger": ("CREATE TRIGGER t AFTER INSERT ON frame BEGIN DELETE FROM series; END",),
    "a table more": ("CREATE TABLE other (a)",),
    "an index on an expression": ("CREATE INDEX i ON frame (abs(first))",),
    "a virtual table": ("DROP TABLE series", "CREATE VIRTUAL TABLE series USING fts5(site)"),
    "a table without rowid": (
        "DROP TABLE recording",
        "CREATE TABLE recording (number INTEGER PRIMARY KEY, file TEXT) WITHOUT ROWID",
    ),
    "no tables": tuple(f"DROP TABLE {name}" for name in ("meta", "seal", "series", "frame", "block", "recording")),
}
