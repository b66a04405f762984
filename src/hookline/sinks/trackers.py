"""Wandb and Trackio: rows to an experiment tracker's run, which is yours or one that is made here."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from hookline.optional import need
from hookline.rows import KINDS, SCALAR, Row
from hookline.sinks.buckets import buckets
from hookline.sinks.tags import by_step, scalars, tag

MOST_BUCKETS = 512
"""Neither tracker takes more."""
STEP = "hookline/step"


class _Tracker:
    """What both do: numbers and histograms of a step in one entry."""

    package: str
    defaults: ClassVar[dict[str, Any]] = {}

    def __init__(
        self, run: Any = None, *, stats: Sequence[str] | None = None, histograms: bool = True, **options: Any
    ) -> None:
        self._run, self._stats, self._histograms, self._options = run, stats, histograms, options
        self._own = False
        self._module: Any = None

    def open(self, meta: dict[str, Any] | None = None) -> None:
        """Takes the run that is there, or makes one."""
        self._module = need(self.package, what=f"the sink {type(self).__name__}")
        if self._run is None:
            self._run = self._active()
        if self._run is None:
            self._run, self._own = self._module.init(**{**self.defaults, **self._options}), True
        self._begin(meta or {})

    def write(self, rows: list[Row]) -> None:
        """One entry for each step."""
        if self._module is None:
            self.open()
        for step, some in by_step(rows).items():
            entry: dict[str, Any] = {}
            for row in some:
                entry |= scalars(row, self._stats)
                found = buckets(row.get("hist"), MOST_BUCKETS) if self._histograms else None
                if found is not None:
                    entry[tag(row, "hist")] = self._module.Histogram(np_histogram=(found.counts, found.edges))
            self._log(entry, step)

    def close(self) -> None:
        """Finishes the run if it was made here."""
        if self._own:
            self._end()
        self._run, self._own, self._module = None, False, None

    def _active(self) -> Any:
        raise NotImplementedError

    def _begin(self, meta: dict[str, Any]) -> None:
        raise NotImplementedError

    def _log(self, entry: dict[str, Any], step: int) -> None:
        raise NotImplementedError

    def _end(self) -> None:
        self._run.finish()


class Wandb(_Tracker):
    """A sink that logs to `run`, to the run that is active, or to `wandb.init(**options)` (`mode="offline"`, ...).

    Steps are a metric of their own, `hookline/step`, which the charts go along: wandb drops what is logged with
    a step that lies behind, and your own logging need not know of these steps.
    """

    package = "wandb"

    def _active(self) -> Any:
        return self._module.run

    def _begin(self, meta: dict[str, Any]) -> None:
        self._run.define_metric(STEP, hidden=True)
        for kind in (*KINDS, SCALAR):
            self._run.define_metric(f"{kind}/*", step_metric=STEP)
        facts = {name: value for name, value in meta.items() if name != "sites"}
        self._run.config.update({"hookline": facts}, allow_val_change=True)

    def _log(self, entry: dict[str, Any], step: int) -> None:
        self._run.log({**entry, STEP: step})


class Trackio(_Tracker):
    """A sink that logs to `run`, to the active one, or to `trackio.init(**options)` (`project="mine"`, ...)."""

    package = "trackio"
    defaults: ClassVar[dict[str, Any]] = {"project": "hookline"}

    def _active(self) -> Any:
        return need("trackio.context_vars", what="the sink Trackio").current_run.get()

    def _begin(self, meta: dict[str, Any]) -> None:
        if self._own and meta:
            facts = {name: value for name, value in meta.items() if name != "sites"}
            self._run.config["hookline"] = facts

    def _log(self, entry: dict[str, Any], step: int) -> None:
        self._run.log(entry, step=step)

    def _end(self) -> None:
        if self._active() is self._run:
            self._module.finish()  # the run's own finish would leave it the active one
        else:
            self._run.finish()
