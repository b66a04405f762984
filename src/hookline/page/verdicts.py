"""Verdicts: what is wrong with each run of a folder, in a sentence, and its last loss; found out aside.

The list of runs is there at once, and what is not known yet is told when it is. A run is looked at again when its
files have changed, and one that is being written not all the time.
"""

from __future__ import annotations

import threading
import time
from contextlib import closing
from typing import Any

import numpy as np

from hookline.page.judging import UNKNOWN, plain
from hookline.page.viewed import REST, ViewedRun
from hookline.runs.columns import Held
from hookline.runs.folder import RunFolder

HELD = 64 << 20
"""Bytes that are held of the runs that are looked at for the list."""
LEAST_REST = 3.0
"""Seconds until a run that is being written is looked at again, at least."""
GIVE_WAY = 0.002
"""Seconds that others have between two series: who looks at a page goes first."""
LOSS = "loss"

Known = dict[str, Any]


class Verdicts:
    """The verdicts of the runs of a folder as far as they are known; a thread finds out the others."""

    def __init__(self, shelf: RunFolder[ViewedRun]) -> None:
        self._shelf = shelf
        self._known: dict[str, tuple[Any, Known, float]] = {}
        self._wanted: dict[str, Any] = {}
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._held = Held(HELD)

    def added(self, runs: list[Known]) -> list[Known]:
        """The same runs, each with its `verdict` and `loss`; both are None where they are not known yet."""
        now = time.monotonic()
        with self._lock:
            names = {run["name"] for run in runs}
            self._known = {name: kept for name, kept in self._known.items() if name in names}
            self._wanted = {}
            for run in runs:
                if "error" in run:
                    continue
                revision = tuple(run.get(name) for name in ("bytes", "last", "written", "state"))
                known, _, rested = self._known.get(run["name"], (None, None, 0.0))
                if known != revision and now >= rested:
                    self._wanted[run["name"]] = revision
            if self._wanted and (self._thread is None or not self._thread.is_alive()):
                self._thread = threading.Thread(target=self._work, name="hookline-verdicts", daemon=True)
                self._thread.start()
            unknown = {"verdict": None, "loss": None}
            return [{**run, **self._known.get(run["name"], (None, unknown, 0.0))[1]} for run in runs]

    def stop(self) -> None:
        """Has the thread end soon, and waits for that."""
        self._held.is_over = True
        if self._thread is not None:
            self._thread.join(5.0)

    def _work(self) -> None:
        paths = self._shelf.names()
        while not self._held.is_over:
            with self._lock:
                name = next(iter(self._wanted), None)
                if name is None:
                    self._thread = None
                    return
                revision = self._wanted.pop(name)
            began = time.monotonic()
            try:
                found = self._looked(paths[name], name)
            except Exception as error:  # nobody waits for this thread: the list goes on without the verdict
                text = f"This could not be found out: {type(error).__name__}: {error}"
                found = {"verdict": {"state": UNKNOWN, "sentence": text}, "loss": None}
            rested = time.monotonic() + max(LEAST_REST, REST * (time.monotonic() - began))
            with self._lock:
                self._known[name] = revision, found, rested

    def _looked(self, path: Any, name: str) -> Known:
        with closing(ViewedRun(path, name, self._held)) as run:
            run.catch_up()
            if not run.series:
                return {"verdict": {"state": UNKNOWN, "sentence": "No statistics were recorded."}, "loss": None}
            health = run.look(lambda share: time.sleep(GIVE_WAY))
            return {"verdict": _brief(health.verdict), "loss": last_loss(run)}


def _brief(verdict: Known) -> Known:
    return {name: verdict[name] for name in ("state", "sentence")}


def last_loss(run: ViewedRun) -> float | str | None:
    """The last loss of the run, as text where it is not finite; None where no loss was kept."""
    ends = []
    for number, one in enumerate(run.series):
        if one.kind == "scalar" and one.site == LOSS:
            steps, stats = run.columns(number)
            if len(steps):
                ends.append((int(steps[-1]), -one.rank, float(np.asarray(stats["mean"])[-1])))
    found: float | str | None = plain(max(ends)[2]) if ends else None
    return found
