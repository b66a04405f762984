"""Store: the sink that keeps a run in a folder, one SQLite file for each process.

Training never waits for the disk: rows go through a bounded queue to a thread that writes them once a
second, or sooner when there are many. What it has written is there after a crash.
"""

from __future__ import annotations

import os
import platform
import sqlite3
import sys
from contextlib import suppress
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from hookline.errors import InvalidArgument, RunError
from hookline.sinks.background import FULL, Background
from hookline.sinks.database import Kept, Writer
from hookline.sinks.frames import Row
from hookline.version import __version__

FLUSH_SECONDS = 1.0
FLUSH_ROWS = 4000
_OF_RECORDINGS: dict[tuple[int, Path], Path] = {}
"""(process, folder) -> the file to which `record(..., to=folder)` has written there."""


class RunStore:
    """A sink that writes rows to the folder `path`; `open_run` reads them, also meanwhile.

    When the disk can't keep up, training waits (`full="wait"`) or rows are left out and counted
    (`full="drop"`, see `dropped`).
    """

    def __init__(self, path: str | Path, *, full: str = "wait") -> None:
        if full not in FULL:
            raise InvalidArgument(f"full={full!r}: 'wait' or 'drop' is wanted.")
        self.path = Path(path)
        self.dropped = 0
        self._full = full
        self._file = Path()
        self._writer: Writer | None = None
        self._background: Background | None = None

    def open(self, meta: dict[str, Any] | None = None) -> None:
        """Makes the file and begins to write; RunError where the folder can't be used."""
        meta = meta or {}
        self._writer = self._new_file({**_facts(), "versions": _versions(meta.get("package")), **meta})
        self._background = Background(self._writer.write, seconds=FLUSH_SECONDS, rows=FLUSH_ROWS, full=self._full)

    def write(self, rows: list[Row]) -> None:
        """Hands the rows of a step to the writing thread; RunError once that has failed."""
        if self._background is None:
            self.open()
        assert self._background is not None
        self._tell(self._background.error)
        self._background.put(rows)
        self.dropped = self._background.dropped

    def keep(self, recording: Any, step: int | None = None) -> None:
        """Writes the tensors of a Recording to a file of their own, and notes it once that is whole."""
        if self._writer is None:
            self.open()
        assert self._writer is not None
        try:
            file = f"{self._file.stem}.{self._writer.recordings():05d}.safetensors"
            recording.save(self.path / file)
            self._writer.add_recording(Kept(file, step, _now("milliseconds"), recording.names))
        except sqlite3.Error as error:
            self._tell(error)

    def close(self) -> None:
        """Writes what is left, notes how the run ended, and closes the file; RunError if that failed."""
        writer, background = self._writer, self._background
        if writer is None or background is None:
            return
        self._writer = self._background = None
        background.close()
        self.dropped, error = background.dropped, background.error
        try:
            if error is None:
                writer.meta({"ended": _now(), "dropped": self.dropped, **_how_it_ended()})
        except sqlite3.Error as failed:
            error = failed
        finally:
            writer.close()
        self._tell(error)

    def _tell(self, error: Exception | None) -> None:
        """Raises what went wrong in the writing thread."""
        if error is not None:
            raise RunError(f"{self.path}: {error}. What was written before is still there.") from error

    def _new_file(self, meta: dict[str, Any]) -> Writer:
        """A file of this process's own: nobody else writes to it, whatever the name of the run.

        Recordings that one process makes one after the other share a file.
        """
        key = (os.getpid(), self.path.absolute())
        again = _OF_RECORDINGS.get(key) if meta.get("by") == "record" else None
        try:
            if again is not None and again.exists():
                self._file = again
                return Writer(again, meta, new=False)
            self.path.mkdir(parents=True, exist_ok=True)
            self._file = self._taken(meta["rank"])
            if meta.get("by") == "record":
                _OF_RECORDINGS[key] = self._file
            return Writer(self._file, meta)
        except (OSError, sqlite3.Error) as error:
            raise RunError(f"a run can't be kept in {self.path}: {error}") from error

    def _taken(self, rank: int) -> Path:
        """A name that no other process has, and that none will get."""
        for number in range(10_000):
            file = self.path / f"rank{rank}-{number:04d}.sqlite"
            try:
                os.close(os.open(file, os.O_CREAT | os.O_EXCL))
            except FileExistsError:
                continue
            return file
        raise RunError(f"{self.path} has 10,000 files of rank {rank} already.")


def _facts() -> dict[str, Any]:
    """What is known of a run when it begins."""
    return {
        "hookline": __version__,
        "python": platform.python_version(),
        "command": sys.argv,
        "process": os.getpid(),
        "started": _now(),
        "rank": int(os.environ.get("RANK", 0)),
    }


def _versions(package: str | None) -> dict[str, str]:
    """The versions of what decides the numbers, as far as they are installed packages."""
    found = {}
    for name in filter(None, ("numpy", package)):
        with suppress(PackageNotFoundError):
            found[name] = version(name)
    return found


def _how_it_ended() -> dict[str, str]:
    """Normally, or by what is being raised at the moment."""
    error = sys.exc_info()[1]
    if error is None:
        return {"end": "normally"}
    if isinstance(error, KeyboardInterrupt):
        return {"end": "interrupted"}
    return {"end": "by an exception", "error": f"{type(error).__name__}: {error}"}


def _now(timespec: str = "seconds") -> str:
    return datetime.now(UTC).isoformat(timespec=timespec)
