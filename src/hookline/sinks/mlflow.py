"""MLflow: the numbers of rows as metrics of a run, sent in batches by a thread of its own."""

from __future__ import annotations

import os
import re
import sys
import time
import zlib
from collections.abc import Sequence
from typing import Any

from hookline.errors import RunError
from hookline.leaving import uncaught
from hookline.optional import need
from hookline.rows import SCALAR, Row
from hookline.sinks.tags import scalars
from hookline.sinks.threaded import Threaded

BATCH = 1000
"""MLflow takes no more metrics at once."""
SECONDS = 2.0
ROWS = 2000


class MLflow(Threaded):
    """A sink that logs to the run `run_id`, to the run that is active, or to a new one of `experiment`.

    `tracking_uri` is where MLflow keeps it; the one that is set if None. MLflow has no histograms.
    """

    def __init__(
        self,
        experiment: str = "hookline",
        *,
        run_id: str | None = None,
        tracking_uri: str | None = None,
        stats: Sequence[str] | None = None,
    ) -> None:
        self.run_id = run_id
        self._experiment, self._uri, self._stats = experiment, tracking_uri, stats
        self._own = False
        self._mlflow: Any = None
        self._client: Any = None

    def open(self, meta: dict[str, Any] | None = None) -> None:
        """Takes the run that is there, or makes one."""
        self._mlflow = need("mlflow", what="the sink MLflow")
        self._client = self._mlflow.MlflowClient(self._uri)
        if self.run_id is None and self._uri is None and (active := self._mlflow.active_run()):
            self.run_id = active.info.run_id
        if self.run_id is None:
            found = self._client.get_experiment_by_name(self._experiment)
            number = found.experiment_id if found else self._client.create_experiment(self._experiment)
            self.run_id, self._own = self._client.create_run(number).info.run_id, True
        for name, value in (meta or {}).items():
            if name != "sites":
                self._client.set_tag(self.run_id, f"hookline.{name}", value)
        self._begin(seconds=SECONDS, rows=ROWS)

    def _end(self) -> None:
        """Ends the run if it was made here."""
        if self._own:
            failed = sys.exc_info()[1] or uncaught()
            self._client.set_terminated(self.run_id, "FAILED" if failed else "FINISHED")

    def _send(self, rows: list[Row]) -> None:
        metric, now = self._mlflow.entities.Metric, int(time.time() * 1000)
        metrics = [
            metric(allowed(name), number, now, row["step"])
            for row in rows
            for name, number in scalars(row, self._stats).items()
        ]
        for start in range(0, len(metrics), BATCH):
            self._client.log_batch(self.run_id, metrics[start : start + BATCH], synchronous=True)

    def _error(self, error: Exception) -> RunError:
        return RunError(f"MLflow run {self.run_id}: {error}")


def allowed(name: str) -> str:
    """A name that MLflow takes, and that no other name becomes.

    >>> allowed("output/std/layer1.0 #1"), allowed("output/std/(model)")
    ('output/std/layer1.0 :1', 'output/std/:model:')
    >>> allowed("output/std/é"), allowed("output/std/..")
    ('output/std/_ 0e048d3e', 'output/std/.. 9608161c')
    >>> allowed("scalar/loss"), allowed("scalar/lr/0"), allowed("scalar/a #2")
    ('scalar/loss', 'scalar/lr/0', 'scalar_a__2 1fd8b957')
    """
    if name.startswith(f"{SCALAR}/"):
        is_plain = re.fullmatch(r"\w[\w\-. /]*", name, re.ASCII) and os.path.normpath(name) == name
        clean = re.sub(r"[^\w\-]", "_", name, flags=re.ASCII)
        return name if is_plain else f"{clean} {zlib.crc32(name.encode()):08x}"
    kind, stat, site = name.split("/", 2)
    plain = re.sub(" [#@]", " :", site.replace("(model)", ":model:", 1) if site.startswith("(model)") else site)
    if re.fullmatch(r"[\w\-. :]*[\w\-:]", plain, re.ASCII) and ":" not in site:
        return f"{kind}/{stat}/{plain}"
    clean = re.sub(r"[^\w\-.]", "_", site, flags=re.ASCII)
    return f"{kind}/{stat}/{clean} {zlib.crc32(site.encode()):08x}"
