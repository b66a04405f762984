"""Shelf: the runs below a folder, by names that are checked against what is there."""

from __future__ import annotations

import os
import threading
import time
from collections import OrderedDict
from contextlib import closing
from pathlib import Path
from typing import Any

from hookline.errors import RunError
from hookline.page.reading import FILES, SILENT, OpenRun, facts, state_of
from hookline.sinks.database import Reader
from hookline.sinks.opening import run_files

DEEPEST = 4
MOST_RUNS = 1000
MOST_OPEN = 6
"""So many runs stay in memory; the one that was asked for longest ago goes first."""


class Shelf:
    """The runs in a folder and below it; the folder may be a run itself.

    A name is never made into a path: it is looked up among the runs that were found, so that no name
    leads out of the folder.
    """

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)
        if not self.folder.is_dir():
            raise RunError(f"there is no folder {self.folder}: one with runs in it is wanted, or a run.")
        self._open: OrderedDict[str, OpenRun] = OrderedDict()
        self._lock = threading.Lock()

    def names(self) -> dict[str, Path]:
        """{name: folder} of every run, at most DEEPEST levels down and MOST_RUNS of them."""
        found: dict[str, Path] = {}
        for place, folders, _ in os.walk(self.folder):  # links are not followed
            here = Path(place)
            relative = here.relative_to(self.folder)
            folders[:] = sorted(name for name in folders if not name.startswith("."))
            if any(here.glob(FILES)):
                found[relative.as_posix() if relative.parts else self.folder.resolve().name] = here
            if len(relative.parts) >= DEEPEST or len(found) >= MOST_RUNS:
                folders.clear()
        return found

    def run(self, name: str) -> OpenRun:
        """The run of that name; RunError where there is none."""
        with self._lock:
            if name not in self._open:
                path = self.names().get(name)
                if path is None:
                    raise RunError("there is no run of that name in the folder.")
                self._open[name] = OpenRun(path, name)
            self._open.move_to_end(name)
            while len(self._open) > MOST_OPEN:
                self._open.popitem(last=False)[1].close()
            return self._open[name]

    def overview(self) -> list[dict[str, Any]]:
        """What is told of each run in a list, the latest first; one that can't be read has an `error` instead."""
        found = [_glance(name, path) for name, path in self.names().items()]
        return sorted(filter(None, found), key=lambda one: one.get("started") or "", reverse=True)

    def close(self) -> None:
        with self._lock:
            while self._open:
                self._open.popitem()[1].close()


def _glance(name: str, path: Path) -> dict[str, Any] | None:
    """None for a run that is just being made."""
    made = min(file.lstat().st_mtime for file in path.glob(FILES))
    try:
        files = run_files(path)
        if not files and time.time() - made < SILENT:
            return None
        if not files:
            raise RunError(f"there is no run in {path}: its files are empty.")
        meta = facts(files)
        last = max(_last_step(file) for file in files)
    except RunError as error:
        return {"name": name, "error": str(error)}
    size = sum(part.lstat().st_size for part in path.glob("rank*.sqlite*"))
    return {
        "name": name,
        "model": meta.get("model"),
        "modules": len(meta.get("sites", [])),
        "last": None if last < 0 else last,
        "bytes": size,
        "processes": len(files),
        **state_of(meta, path),
    }


def _last_step(file: Path) -> int:
    try:
        with closing(Reader(file)) as reader:
            return reader.last_frame()[1]
    except RunError:  # one of many files: the page tells of it
        return -1
