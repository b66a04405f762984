"""Viewed: a run on the page. What is wrong with its layers is found out aside; who looks at a chart goes first."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from hookline.diagnosis.finding import Finding
from hookline.errors import RunError
from hookline.page.judging import by_module, judge, told
from hookline.runs.columns import Columns, Counted, Held
from hookline.runs.diagnosing import as_training
from hookline.runs.growing import OpenRun
from hookline.wiring import Wiring

A_MOMENT, WAY = 0.4, 5.0
"""While charts are asked for, the thread that finds the health waits, for the first seconds."""
REST = 3.0
"""After looking at the health of a run, so many times as long nobody looks again."""


class Health(NamedTuple):
    """What was found, of which revision, until which step; before anything is looked at, `revision` is -1.

    `findings` has the causes first, `modules` what was found of each module that was looked at, `verdict` all of
    it in a sentence. `error` says why it could not be found out.
    """

    revision: int
    findings: list[Finding]
    until: int | None = None
    error: str | None = None
    modules: dict[str, list[Finding]] = {}  # noqa: RUF012
    verdict: dict[str, Any] = {}  # noqa: RUF012


class ViewedRun(OpenRun):
    """A run that is looked at, and its health."""

    def __init__(self, path: Path, name: str, held: Held | None = None) -> None:
        super().__init__(path, name, held)
        self._looking = threading.Lock()
        self._looker: threading.Thread | None = None
        self._rested = self._asked = 0.0
        self._closed = False
        self._health = Health(-1, [])

    def columns(self, number: int) -> Columns:
        """A series, for somebody who waits for it."""
        self._asked = time.monotonic()
        return super().columns(number)

    def histograms(self, number: int) -> Counted:
        """The histograms of a series, for somebody who waits for them."""
        self._asked = time.monotonic()
        return super().histograms(number)

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
                until, read = -1, set[int]()

                def columns(number: int) -> Columns:
                    nonlocal until
                    found = super(ViewedRun, self).columns(number)
                    until = max(until, int(found.steps[-1]) if len(found.steps) else -1)
                    read.add(number)
                    if tell is not None:
                        tell(min(1.0, len(read) / len(series)))
                    return found

                training = as_training(self, columns)  # not closed: that would close the run
                found = judge(training)
                last = None if until < 0 else until
                known = by_module(found, training), told(found, training, last)
                self._health = Health(revision, found, last, None, *known)
            return self._health

    def wiring(self) -> Wiring | None:
        """How the training hangs together; None where the run does not have it, or it can't be read."""
        noted = self.meta.get("wiring")
        try:
            return None if noted is None else Wiring.from_json(noted)
        except RunError:
            return None

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
                self._health = Health(self.revision, [], None, f"{type(error).__name__}: {error}")
        # A run that does not fit into memory is read again each time: most of the time is left to others.
        self._rested = time.monotonic() + REST * (time.monotonic() - began)

    def close(self) -> None:
        self._closed = True
        super().close()
