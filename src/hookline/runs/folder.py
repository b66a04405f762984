"""Folder: the runs below a folder, by names that are checked against what is there."""

from __future__ import annotations

import os
import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path
from typing import Any, Generic, TypeVar

from hookline.errors import RunError, printable
from hookline.runfiles.opening import run_files
from hookline.runfiles.reader import Reader
from hookline.runs.columns import Held
from hookline.runs.growing import OpenRun
from hookline.runs.state import FILES, SILENT, facts, state_of

DEEPEST = 4
MOST_RUNS = 1000
SHOWN = 8
MOST_OPEN = 6
"""So many runs stay in memory; the one that was asked for longest ago goes first."""


Opened = TypeVar("Opened", bound=OpenRun)
Stamp = list[tuple[str, int, int]]


class RunFolder(Generic[Opened]):
    """The runs in a folder and below it, each opened by `opens`; it may be a run itself, and may come later.

    A name is never made into a path: it is looked up among the runs that were found, so that no name
    leads out of the folder.
    """

    def __init__(self, folder: str | Path, opens: Callable[[Path, str, Held], Opened]) -> None:
        self._opens = opens
        self.folder = Path(folder).absolute()
        if self.folder.exists() and not self.is_there:
            raise RunError(f"{self.folder} is a file: expected a folder with runs in it, or a run.")
        self._glances: dict[Path, tuple[Any, dict[str, Any]]] = {}
        self._open: OrderedDict[str, Opened] = OrderedDict()
        self._lock = threading.Lock()
        self._held = Held()

    @property
    def is_there(self) -> bool:
        return self.folder.is_dir()

    def names(self) -> dict[str, Path]:
        """{name: folder} of every run, at most DEEPEST levels down and MOST_RUNS of them."""
        found: dict[str, Path] = {}
        for place, folders, _ in os.walk(self.folder):  # links are not followed
            here = Path(place)
            relative = here.relative_to(self.folder)
            folders[:] = sorted(name for name in folders if not name.startswith("."))
            if any(here.glob(FILES)):
                found[_text(relative.as_posix() if relative.parts else self.folder.resolve().name)] = here
            if len(relative.parts) >= DEEPEST or len(found) >= MOST_RUNS:
                folders.clear()
        return found

    def path(self, name: str) -> Path:
        """The folder of the run of that name; RunError where there is none."""
        names = self.names()
        if name not in names:
            shown = ", ".join(repr(one) for one in list(names)[:SHOWN]) + (", ..." if len(names) > SHOWN else "")
            there = f"It has {len(names)}: {shown}." if names else "It has none yet."
            raise RunError(f"there is no run of that name in the folder: {printable(repr(name))}. {there}")
        return names[name]

    def now(self, name: str) -> tuple[Stamp, dict[str, Any]]:
        """What the files of a run are by now, and what is told of it in a list; RunError where it can't be read.

        Files to which something was written give another stamp.
        """
        path = self.path(name)
        stamp, told = _stamp(path), self._glance(name, path)
        if told is None:
            raise RunError(f"the run {name!r} is just being made, and has nothing in it yet. Look again soon.")
        if "error" in told:
            raise RunError(f"the run {name!r} can't be read: {told['error']}")
        return stamp, told

    def run(self, name: str) -> Opened:
        """The run of that name; RunError where there is none."""
        with self._lock:
            if name not in self._open:
                self._open[name] = self._opens(self.path(name), name, self._held)
            self._open.move_to_end(name)
            while len(self._open) > MOST_OPEN:
                self._open.popitem(last=False)[1].close()
            return self._open[name]

    def overview(self) -> list[dict[str, Any]]:
        """What is told of each run in a list, the latest first; one that can't be read has an `error` instead."""
        names = self.names()
        self._glances = {path: kept for path, kept in self._glances.items() if path in names.values()}
        found = [self._glance(name, path) for name, path in names.items()]
        return sorted(filter(None, found), key=lambda one: one.get("started") or "", reverse=True)

    def _glance(self, name: str, path: Path) -> dict[str, Any] | None:
        """None for a run that is just being made. Files are opened only when they have changed."""
        key = _stamp(path)
        if not key:
            return None
        known, facts_of = self._glances.get(path, (None, {}))
        if known != key:
            facts_of = _seen(path)
            self._glances[path] = key, facts_of
        if facts_of.get("empty") and time.time() - min(when for _, _, when in key) / 1e9 < SILENT:
            return None
        if "error" in facts_of:
            return {"name": name, **facts_of}
        told = {field: value for field, value in facts_of.items() if field != "meta"}
        size = sum(each for _, each, _ in key)
        return {"name": name, **told, "bytes": size, **state_of(facts_of["meta"], path)}

    def stop(self) -> None:
        """Has whoever reads a run stop soon."""
        self._held.is_over = True

    def close(self) -> None:
        with self._lock:
            while self._open:
                self._open.popitem()[1].close()


def _text(name: str) -> str:
    """A name as text: bytes of a file's name that are no UTF-8 are written as they are in Python.

    >>> _text("run\\udcff")
    'run\\\\xff'
    """
    return name.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")


def _stamp(path: Path) -> Stamp:
    """(name, size, time of the last change) of each file of a run."""
    found: Stamp = []
    for part in sorted(part for ending in ("", "-wal") for part in path.glob(FILES + ending)):
        with suppress(FileNotFoundError):  # a journal goes when its run ends
            stat = part.lstat()
            found.append((part.name, stat.st_size, stat.st_mtime_ns))
    return found


def _seen(path: Path) -> dict[str, Any]:
    """What the files of a run tell of it in a list, or why they can't be read."""
    try:
        files = run_files(path)
        if not files:
            return {"error": f"there is no run in {path}: its files are empty.", "empty": True}
        meta = facts(files)
        last = max(_last_step(file) for file in files)
    except RunError as error:
        return {"error": str(error)}
    return {
        "model": meta.get("model"),
        "modules": len(meta.get("sites", [])),
        "last": None if last < 0 else last,
        "processes": len(files),
        "meta": meta,
    }


def _last_step(file: Path) -> int:
    try:
        with closing(Reader(file)) as reader:
            return reader.glance_at_last_step()
    except RunError:  # one of many files: the page tells of it
        return -1
