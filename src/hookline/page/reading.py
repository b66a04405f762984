"""Reading: a run as the page sees it: series with numbers that stay, and arrays that grow while it is written."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from hookline.errors import RunError
from hookline.page.columns import Columns, Counted, FileColumns, Held
from hookline.page.health import Finding, owners, verdicts
from hookline.runs.run import Run
from hookline.sinks.database import Reader
from hookline.sinks.opening import run_files

FILES = "rank*-*.sqlite"
MOST_DAMAGE = 20
"""So many damages are told on the page."""
SILENT = 60.0
"""A run without an end to which nothing was written for so many seconds may have been killed."""
MOST_ASKED = 64
"""So many groups are asked which statistics they have."""
A_MOMENT, WAY = 0.4, 5.0
"""While charts are asked for, the thread that finds the health waits, for the first seconds."""
REST = 3.0
"""After looking at the health of a run, so many times as long nobody looks again."""


def health(run: Run | str | Path) -> dict[str, list[Finding]]:
    """What is wrong with each module of a run, the worst first: {name: findings}; an empty list is a healthy one.

    A Finding has `what` (nan, exploding, dead, vanishing or still), `why`, a sentence, and the `step`.
    """
    folder = run.path if isinstance(run, Run) else Path(run)
    with closing(OpenRun(folder, folder.name)) as opened:
        opened.catch_up()
        return opened.look().findings


class Series(NamedTuple):
    """What one curve is about."""

    site: str
    kind: str
    call: int
    mode: str
    rank: int


class Health(NamedTuple):
    """What was found, of which revision, until which step; before anything is looked at, `revision` is -1.

    `error` says why it could not be found out.
    """

    revision: int
    findings: dict[str, list[Finding]]
    until: int | None = None
    error: str | None = None


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
        self._looking = threading.Lock()
        self._looker: threading.Thread | None = None
        self._rested = self._asked = 0.0
        self._closed = False
        self._health = Health(-1, {})
        self._find_files()
        if not self._files:
            raise RunError(f"there is no run in {path}: a folder with a file rank*.sqlite is wanted.")

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
        self._asked = time.monotonic()
        return self._columns(number)

    def _columns(self, number: int) -> Columns:
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
        self._asked = time.monotonic()
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
                for local, row in file.reader.rows(set(locals_), step, step):
                    found[locals_[local]] = row
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
        params = {"param", "param_grad", "update"}
        more = dict.fromkeys(one.site for one in self.series if one.kind not in params and one.site not in names)
        return [*noted, *((name, "") for name in more)]

    def health(self, seconds: float = 0.0) -> Health:
        """What is known of the layers' health, after at most so long; a thread finds out what is not known yet."""
        with self.lock:
            idle = self._looker is None or not self._looker.is_alive()
            if idle and self._health.revision != self.revision and time.monotonic() >= self._rested:
                if not seconds:  # nobody waits: who asked is about to ask for charts, which go first
                    self._asked = time.monotonic()
                self._looker = threading.Thread(target=self._look_aside, name="hookline-health", daemon=True)
                self._looker.start()
        if self._looker is not None:
            self._looker.join(seconds)
        return self._health

    def look(self, tell: Callable[[float], None] | None = None) -> Health:
        """The health of all that is known by now; `tell` is told the share that is done."""
        with self._looking:  # not `lock`: it may take seconds, and others want to read meanwhile
            with self.lock:
                revision, series = self.revision, list(self.series)
            if revision != self._health.revision or self._health.error:
                names = [name for name, _ in self.modules()]
                until = -1

                def columns(number: int) -> Columns:
                    nonlocal until
                    found = self._columns(number)
                    until = max(until, int(found.steps[-1]) if len(found.steps) else -1)
                    if tell is not None:
                        tell((number + 1) / len(series))
                    return found

                found = verdicts(series, columns, owners(names, [one.site for one in series]))
                self._health = Health(revision, found, None if until < 0 else until)
            return self._health

    def _look_aside(self) -> None:
        began = time.monotonic()

        def give_way(share: float) -> None:
            """Who looks at a chart goes first, for some seconds at most."""
            while time.monotonic() - self._asked < A_MOMENT and time.monotonic() - began < WAY:
                time.sleep(A_MOMENT / 4)

        try:
            self.look(give_way)
        except Exception as error:  # nobody waits for this thread: what went wrong is told on the page
            if not self._closed:
                self._health = Health(self.revision, {}, None, f"{type(error).__name__}: {error}")
        # A run that does not fit into memory is read again each time: most of the time is left to others.
        self._rested = time.monotonic() + REST * (time.monotonic() - began)

    def state(self) -> dict[str, Any]:
        """How the run is doing: running, silent, ended, interrupted or failed, and since when."""
        meta = self.meta
        with self.lock:
            told = [sentence for file in self._files.values() for sentence in file.reader.damage]
            damage = [*self._unreadable.values(), *told]
        return {**state_of(meta, self.path), "dropped": meta.get("dropped", 0), "damage": damage[:MOST_DAMAGE]}

    def close(self) -> None:
        self._closed = True
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


def facts(files: list[Path]) -> dict[str, Any]:
    """The facts in the first of these files that a watch wrote; `record(to=)` leaves files in a run as well."""
    found: dict[str, Any] = {}
    errors: list[RunError] = []
    for path in files:
        try:
            with closing(Reader(path)) as reader:
                found = found or reader.meta
                if reader.meta.get("by") != "record":
                    return reader.meta
        except RunError as error:
            errors.append(error)
    if errors and len(errors) == len(files):
        raise errors[0]
    return found


ENDS = {"normally": "ended", "interrupted": "interrupted"}


def state_of(meta: dict[str, Any], path: Path) -> dict[str, Any]:
    """{"state": ..., "started": ..., "ended": ..., "written": ...} of the run in a folder, from its facts."""
    files = [file for ending in ("", "-wal") for file in path.glob(FILES + ending)]  # to -shm readers write
    written = max((file.lstat().st_mtime for file in files), default=0.0)
    if "end" in meta:
        state = ENDS.get(meta["end"], "failed")
    else:
        state = "running" if time.time() - written < SILENT else "silent"
    return {
        "state": state,
        "why": meta.get("error"),
        "started": meta.get("started"),
        "ended": meta.get("ended"),
        "written": datetime.fromtimestamp(written, UTC).isoformat(timespec="seconds"),
    }
