"""Store: the sink that keeps a run in a folder, one SQLite file for each process.

Training never waits for the disk: rows go through a bounded queue to a thread that writes them once a
second, or sooner when there are many. What it has written is there after a crash.
"""

from __future__ import annotations

import os
import queue
import sqlite3
import sys
import threading
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from hookline.errors import InvalidArgument, RunError
from hookline.sinks.database import Writer
from hookline.sinks.frames import Row
from hookline.version import __version__

FLUSH_SECONDS = 1.0
FLUSH_ROWS = 4000
QUEUE = 64
"""So many steps may wait to be written; then `full` decides."""


class RunStore:
    """A sink that writes rows to the folder `path`; `open_run` reads them, also meanwhile.

    When the disk can't keep up, training waits (`full="wait"`) or rows are left out and counted
    (`full="drop"`, see `dropped`).
    """

    def __init__(self, path: str | Path, *, full: str = "wait") -> None:
        if full not in ("wait", "drop"):
            raise InvalidArgument(f"full={full!r}: 'wait' or 'drop' is wanted.")
        self.path = Path(path)
        self.dropped = 0
        self._full = full
        self._queue: queue.Queue[list[Row] | None] = queue.Queue(QUEUE)
        self._error: Exception | None = None
        self._writer: Writer | None = None
        self._thread = threading.Thread(target=self._work, name="hookline-run-store", daemon=True)

    def open(self, meta: dict[str, Any] | None = None) -> None:
        """Makes the file and begins to write; RunError where the folder can't be used."""
        self._writer = self._new_file({**_facts(), **(meta or {})})
        self._thread.start()

    def write(self, rows: list[Row]) -> None:
        """Hands the rows of a step to the writing thread; RunError once that has failed."""
        if self._writer is None:
            self.open()
        self._tell()
        if self._full == "wait":
            self._queue.put(rows)
            return
        try:
            self._queue.put_nowait(rows)
        except queue.Full:
            self.dropped += len(rows)

    def close(self) -> None:
        """Writes what is left, notes how the run ended, and closes the file; RunError if that failed."""
        if self._writer is None or not self._thread.is_alive():
            return
        self._queue.put(None)
        self._thread.join()
        try:
            if self._error is None:
                ended = "by an exception" if sys.exc_info()[0] else "normally"
                self._writer.meta({"ended": _now(), "end": ended, "dropped": self.dropped})
        except sqlite3.Error as error:
            self._error = error
        finally:
            self._writer.close()
        self._tell()

    def _tell(self) -> None:
        """Raises what went wrong in the writing thread."""
        if self._error is not None:
            raise RunError(f"{self.path}: {self._error}. What was written before is still there.")

    def _new_file(self, meta: dict[str, Any]) -> Writer:
        """A file of this process's own: nobody else writes to it, whatever the name of the run."""
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            for number in range(10_000):
                file = self.path / f"rank{meta['rank']}-{number:04d}.sqlite"
                try:
                    os.close(os.open(file, os.O_CREAT | os.O_EXCL))
                except FileExistsError:
                    continue
                return Writer(file, meta)
            raise RunError(f"{self.path} has 10,000 files of rank {meta['rank']} already.")
        except (OSError, sqlite3.Error) as error:
            raise RunError(f"a run can't be kept in {self.path}: {error}") from error

    def _work(self) -> None:
        waiting: list[Row] = []
        last = time.monotonic()
        more = True
        while more:
            try:
                got = self._queue.get(timeout=FLUSH_SECONDS)
                more = got is not None
                waiting += got or []
            except queue.Empty:
                pass
            due = time.monotonic() - last >= FLUSH_SECONDS or len(waiting) >= FLUSH_ROWS or not more
            if waiting and due and self._error is None and self._writer is not None:
                try:
                    self._writer.write(waiting)
                except Exception as error:  # told to the training thread at its next row, once
                    self._error = error
            if due:
                waiting, last = [], time.monotonic()


def _facts() -> dict[str, Any]:
    """What is known of a run when it begins."""
    return {
        "hookline": __version__,
        "python": sys.version.split()[0],
        "command": sys.argv,
        "process": os.getpid(),
        "started": _now(),
        "rank": int(os.environ.get("RANK", 0)),
    }


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
