"""Journal: which way of writing a SQLite file a folder allows.

A write-ahead log (WAL) lets others read while this process writes, but needs memory that processes share through
the file system. Network file systems often have none, and some say so only at the first write: so it is tried.
"""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing, suppress
from pathlib import Path

SUFFIXES = ("", "-wal", "-shm", "-journal")


def why_no_wal(folder: str | Path) -> str | None:
    """None where SQLite's write-ahead log works in `folder`; else why it does not.

    A scratch file is written, read by a second connection, and removed.

    >>> import tempfile
    >>> why_no_wal(tempfile.mkdtemp()) is None
    True
    """
    scratch = Path(folder) / f".probe-{os.getpid()}-{os.urandom(4).hex()}.sqlite"
    try:
        with closing(connected(scratch)) as writer, closing(connected(scratch)) as reader:
            (mode,) = writer.execute("PRAGMA journal_mode=WAL").fetchone()
            if mode != "wal":
                return f"SQLite uses the journal {mode!r} here"
            writer.execute("CREATE TABLE probe (number INTEGER)")
            writer.execute("INSERT INTO probe VALUES (1)")
            reader.execute("SELECT number FROM probe").fetchone()
            return None
    except sqlite3.Error as error:
        return f"{type(error).__name__}: {error}"
    finally:
        for suffix in SUFFIXES:
            with suppress(OSError):
                Path(f"{scratch}{suffix}").unlink(missing_ok=True)


def connected(path: Path) -> sqlite3.Connection:
    """A connection for writing, to be used by one thread at a time; a statement is a transaction of its own."""
    return sqlite3.connect(path, isolation_level=None, check_same_thread=False, timeout=30)
