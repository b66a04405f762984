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
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from hookline.background import FULL, Background
from hookline.errors import InvalidArgument, RunError
from hookline.leaving import no_longer, uncaught, until_exit
from hookline.reporting import warn
from hookline.rows import Row, Rows
from hookline.runfiles.clock import now
from hookline.runfiles.places import launch, numbered, resolved
from hookline.runfiles.runfile import RunFile, again, opened
from hookline.version import __version__

FLUSH_SECONDS = 1.0
FLUSH_ROWS = 4000


class RunStore:
    """A sink that writes rows to the folder `path`; `open_run` reads them, also meanwhile.

    A folder holds one run. One that is there is refused, or goes on after its last step with `resume=True`; a `*`
    in the folder's name becomes the next number that is free. When the disk can't keep up, training waits
    (`full="wait"`) or rows are left out and counted (`full="drop"`, see `dropped`).
    """

    revises = True
    """A step may come twice, and counts as it came last."""
    takes_columns = True
    """No dicts have to be made for it."""
    _is_open = False

    def __init__(self, path: str | Path, *, full: str = "wait", resume: bool = False) -> None:
        if full not in FULL:
            raise InvalidArgument(f"full={full!r}: expected 'wait' or 'drop'.")
        self.path = resolved(path)
        self.dropped = 0
        self.first_step = 0
        """The step that a run begins with; where one is resumed, the first that it does not have."""
        self._full, self._resume = full, resume
        self._file: RunFile | None = None
        self._notes_end = True
        self._facts: dict[str, Any] = {}
        self._background: Background[Rows] | None = None

    @property
    def seconds(self) -> float:
        """The CPU time that writing took so far, in its own thread."""
        return 0.0 if self._background is None else self._background.seconds

    def open(self, meta: dict[str, Any] | None = None) -> None:
        """Makes the file, or takes the one that is there, and begins to write; RunError where that can't be."""
        meta = {**_facts(), "versions": _versions((meta or {}).get("package")), **(meta or {})}
        try:
            if self._file is not None and self._file.path.exists() and not self._file.is_elsewhere:
                again(self._file, meta)
            else:
                if "*" in self.path.name and (meta["rank"] or int(os.environ.get("WORLD_SIZE", 1)) > 1):
                    raise InvalidArgument(
                        f"{str(self.path)!r}: processes that train together need one name, no *."
                    )
                self.path = numbered(self.path, again=self._resume)
                self._file = opened(self.path, meta, resume=self._resume)
        except (OSError, sqlite3.Error) as error:
            raise RunError(f"a run can't be kept in {self.path}: {error}") from error
        self.first_step = self._file.first_step
        self._notes_end = meta.get("by") != "record" or self._file.meta.get("by") == "record"
        self._is_open = True
        until_exit(self)

    def write(self, rows: Rows | list[Row], *, at_once: bool = False) -> None:
        """Hands the rows of a step to the writing thread; RunError once that has failed."""
        rows = Rows.of(rows)
        file = self._opened()
        if self._background is None:
            seconds, most = FLUSH_SECONDS, FLUSH_ROWS
            self._background = Background(partial(_write, file), seconds=seconds, rows=most, full=self._full)
        self._tell(self._background.error)
        try:
            self._background.put(rows, at_once=at_once)
        finally:
            self.dropped = self._background.dropped
        self._note()

    def keep(self, recording: Any, step: int | None = None) -> None:
        """Writes the tensors of a Recording to a file of their own, and notes it once that is whole."""
        file = self._opened()
        if file.is_elsewhere:
            raise RunError("this process was forked from the one that writes the run.")
        try:
            file.keep(recording, step)
        except sqlite3.Error as error:
            self._tell(error)
        self._note()

    def note(self, facts: dict[str, Any], *, at_once: bool = False) -> None:
        """Facts of the run that are written when it ends, and now too if that is asked for."""
        self._facts |= facts
        if at_once and self._is_open and self._file is not None and not self._file.is_elsewhere:
            self._file.note(facts)

    def close(self) -> None:
        """Writes what is left, notes how the run ended, and closes the file; RunError if that failed."""
        file, background = self._file, self._background
        if file is None or not self._is_open:
            return
        self._is_open, self._background = False, None
        how = _how_it_ended(sys.exc_info()[1] or uncaught())
        try:
            if background is None:
                self._leave(file, how, None)
            else:
                background.close(partial(self._leave, file, how, background))
        finally:
            no_longer(self)

    def _leave(self, file: RunFile, how: dict[str, str], background: Background[Rows] | None) -> None:
        """Notes the end, once all is written."""
        error = None if background is None else background.error
        self.dropped = self.dropped if background is None else background.dropped
        try:
            facts = {**self._facts, "ended": now(), "dropped": self.dropped, **how}
            file.leave(facts if error is None and self._notes_end else {})
        except (sqlite3.Error, OSError) as failed:
            error = failed
        self._note()
        self._tell(error)

    at_exit = close

    def __del__(self) -> None:
        if self._is_open:
            with suppress(Exception):  # nobody is there to be told
                self.close()

    def _opened(self) -> RunFile:
        if not self._is_open:
            self.open()
        assert self._file is not None
        return self._file

    def _note(self) -> None:
        """Tells what happened to the file, once."""
        assert self._file is not None
        notice, self._file.notice = self._file.notice, ""
        if notice:
            self.path = self._file.path.parent
            warn(notice, stacklevel=3)

    def _tell(self, error: Exception | None) -> None:
        """Raises what went wrong in the writing thread."""
        if error is not None:
            raise RunError(f"{self.path}: {error}. What was written before is still there.") from error


def _write(file: RunFile, steps: list[Rows]) -> None:
    file.write(Rows.joined(steps))


def _facts() -> dict[str, Any]:
    """What is known of a run when it begins."""
    return {
        "hookline": __version__,
        "python": platform.python_version(),
        "command": sys.argv,
        "process": os.getpid(),
        "started": now(),
        "rank": int(os.environ.get("RANK", 0)),
        "launch": launch(),
    }


def _versions(package: str | None) -> dict[str, str]:
    """The versions of what decides the numbers, as far as they are installed packages."""
    found = {}
    for name in filter(None, ("numpy", package)):
        with suppress(PackageNotFoundError):
            found[name] = version(name)
    return found


def _how_it_ended(error: BaseException | None) -> dict[str, str]:
    """Normally, or by what was raised."""
    if error is None or (isinstance(error, SystemExit) and not error.code):
        return {"end": "normally"}
    if isinstance(error, KeyboardInterrupt):
        return {"end": "interrupted"}
    return {"end": "by an exception", "error": f"{type(error).__name__}: {error}"}
