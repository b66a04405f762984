"""Growing: a run as arrays that grow while it is written, of series with numbers that stay."""

from __future__ import annotations

import math
import threading
import time
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from hookline.errors import RunError
from hookline.rows import OF_PARAMETERS, SCALAR
from hookline.runfiles.opening import run_files
from hookline.runs.columns import Columns, Counted, FileColumns, Held
from hookline.runs.state import facts, state_of

MOST_DAMAGE = 20
"""So many damages are told on the page."""
MOST_ASKED = 64
"""So many groups are asked which statistics they have."""


class Series(NamedTuple):
    """What one curve is about."""

    site: str
    kind: str
    call: int
    mode: str
    rank: int


class OpenRun:
    """A run's folder, known as far as `catch_up` has come; for many threads, one at a time (`lock`)."""

    def __init__(self, path: Path, name: str, held: Held | None = None) -> None:
        self.path, self.name = path, name
        self.lock = threading.RLock()
        self.series: list[Series] = []
        self.revision = 0
        """Grows with every frame that is written."""
        self._held = held or Held()
        self._files: dict[Path, FileColumns] = {}
        self._unreadable: dict[Path, str] = {}
        self._where: list[list[tuple[FileColumns, int]]] = []
        self._numbers: dict[Series, int] = {}
        self._find_files()
        if not self._files:
            raise RunError(f"there is no run in {path}: expected a folder with a file rank*.sqlite.")

    def catch_up(self, seconds: float = float("inf")) -> float:
        """Learns what was written since, for so long at most; the share of it that is known by then."""
        with self.lock:
            self._find_files()
            until = time.monotonic() + seconds
            frames = sum(file.catch_up(until) for file in self._files.values())
            if frames:
                self.revision += frames
                for file in self._files.values():
                    self._number(file)
            return math.floor(1000 * min(file.progress for file in self._files.values())) / 1000

    def names(self) -> list[str]:
        """The statistics that rows have besides those of all, by the first and last frames of some groups."""
        with self.lock:
            asked = [(file, group) for file in self._files.values() for group in file.groups]
            some = asked[:: max(1, len(asked) // MOST_ASKED)]
            return sorted(set().union(*(file.names(group) for file, group in some)))

    def columns(self, number: int) -> Columns:
        """A series over all files; a step that was written twice counts once, as it was written last."""
        with self.lock:
            parts = [file.columns(local) for file, local in self._where[number]]
        if len(parts) == 1 and (np.diff(parts[0].steps) > 0).all():
            return parts[0]
        steps = np.concatenate([part.steps for part in parts])
        names = dict.fromkeys(name for part in parts for name in part.stats)
        gaps = [np.full(len(part.steps), np.nan) for part in parts]
        stats = {
            name: np.concatenate([part.stats.get(name, gap) for part, gap in zip(parts, gaps, strict=True)])
            for name in names
        }
        order = np.argsort(steps, kind="stable")
        last = np.append(np.diff(steps[order]) > 0, True) if len(steps) else np.empty(0, bool)
        kept = order[last]
        return Columns(steps[kept], {name: values[kept] for name, values in stats.items()})

    def histograms(self, number: int) -> Counted:
        """The histograms of a series, entry by entry."""
        with self.lock:
            parts = [file.histograms(local) for file, local in self._where[number]]
        return Counted(*(np.concatenate(arrays) for arrays in zip(*parts, strict=True)))

    def rows_at(self, numbers: dict[int, int]) -> dict[int, dict[str, Any]]:
        """The whole row, with its histogram, of each series at a step: {series: step} to {series: row}."""
        found: dict[int, dict[str, Any]] = {}
        with self.lock:
            wanted: dict[tuple[FileColumns, int], dict[int, int]] = {}
            for number, step in numbers.items():
                for file, local in self._where[number]:
                    wanted.setdefault((file, step), {})[local] = number
            for (file, step), locals_ in wanted.items():
                for those, rows in file.reader.rows(set(locals_), step, step):
                    found.update(zip((locals_[local] for local in those), rows, strict=True))
        return found

    @property
    def steps(self) -> list[int]:
        with self.lock:
            return sorted(set().union(*(file.steps for file in self._files.values())))

    @property
    def meta(self) -> dict[str, Any]:
        """The facts of the first file of a watch, as they are now."""
        with self.lock:
            return facts(list(self._files))

    def modules(self) -> list[tuple[str, str]]:
        """(name, type) of every module: those the run has noted, and other sites that are no parameters."""
        noted = [(str(name), str(kind)) for name, kind in self.meta.get("sites", [])]
        names = {name for name, _ in noted}
        others = {*OF_PARAMETERS, SCALAR}
        more = dict.fromkeys(one.site for one in self.series if one.kind not in others and one.site not in names)
        return [*noted, *((name, "") for name in more)]

    def state(self) -> dict[str, Any]:
        """How the run is doing: running, silent, ended, interrupted or failed, and since when."""
        meta = self.meta
        with self.lock:
            told = [sentence for file in self._files.values() for sentence in file.reader.damage]
            damage = [*self._unreadable.values(), *told]
        return {**state_of(meta, self.path), "dropped": meta.get("dropped", 0), "damage": damage[:MOST_DAMAGE]}

    def close(self) -> None:
        with self.lock:
            for file in self._files.values():
                file.close()

    def _find_files(self) -> None:
        for path in run_files(self.path):
            if path not in self._files:
                try:
                    self._files[path] = FileColumns(path, self._held)
                    self._unreadable.pop(path, None)
                except RunError as error:  # of one process of many: the others' rows are there
                    self._unreadable[path] = str(error)
                    if not self._files and len(self._unreadable) == len(run_files(self.path)):
                        raise

    def _number(self, file: FileColumns) -> None:
        for local, one in file.series.items():
            series = Series(one["site"], one["kind"], one["call"], one["mode"], file.rank)
            number = self._numbers.setdefault(series, len(self.series))
            if number == len(self.series):
                self.series.append(series)
                self._where.append([])
            if (file, local) not in self._where[number]:
                self._where[number].append((file, local))
