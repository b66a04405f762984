"""Reading: the rows of a watch, asked for as those of a run (`hookline.rows.HasRows`)."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from hookline.choosing import check_stat, with_stat, within_steps
from hookline.diagnosis.finding import Finding
from hookline.diagnosis.training import Scalar, Training
from hookline.rows import FIXED, SCALAR, Curve, Row, Series
from hookline.tables import arrow_table, pandas_frame, polars_frame


class Watched(NamedTuple):
    """What a curve is about."""

    site: str
    kind: str
    mode: str


class Reading:
    """What can be asked of the rows in memory."""

    def _rows_in_memory(self, site: str | None, kind: str | None, step: int | None) -> list[Row]:
        raise NotImplementedError

    def _curves_in_memory(self) -> dict[Series, Curve]:
        raise NotImplementedError

    @property
    def _modules(self) -> list[tuple[str, str]]:
        raise NotImplementedError

    @property
    def sites(self) -> list[str]:
        """The names of all sites with rows in memory, in the order in which they first came."""
        return list(dict.fromkeys(row["site"] for row in self.rows()))

    @property
    def steps(self) -> list[int]:
        """Every step with a row in memory."""
        return sorted({row["step"] for row in self.rows()})

    def rows(
        self,
        site: str | None = None,
        kind: str | None = None,
        step: int | None = None,
        *,
        stat: str | None = None,
        steps: tuple[int | None, int | None] | range | None = None,
    ) -> list[Row]:
        """The rows in memory: dicts with site, kind, step, call, rank, mode and the statistics.

        Those of a site (a name or glob), a kind, a step, or steps from one to another; with `stat` each row has
        that statistic only. Scalars are there by kind="scalar" only.
        """
        rows = self._rows_in_memory(site, kind, step)
        if stat is not None:
            check_stat(stat, lambda: dict.fromkeys(name for row in rows for name in row if name not in FIXED))
        return with_stat(within_steps(rows, steps), stat)

    def scalars(self) -> dict[str, Scalar]:
        """The numbers of the training that are in memory, by name: "loss", "lr", "grad_norm", those of `log`."""
        found: dict[str, list[Row]] = {}
        for row in self._rows_in_memory(None, SCALAR, None):
            found.setdefault(row["site"], []).append(row)
        return {name: scalar_of(rows) for name, rows in found.items()}

    def _with_scalars(self) -> list[Row]:
        return sorted([*self.rows(), *self.rows(kind=SCALAR)], key=lambda row: row["step"])

    def to_pandas(self, *, histograms: bool = False) -> Any:
        """The rows in memory, with scalars, as a pandas DataFrame, as `Run.to_pandas` has them."""
        return pandas_frame(self._with_scalars(), histograms=histograms)

    def to_polars(self) -> Any:
        """The same as a polars DataFrame."""
        return polars_frame(self._with_scalars())

    def to_arrow(self) -> Any:
        """The same as an Arrow table."""
        return arrow_table(self._with_scalars())

    def plot(self, site: str | None = None, kind: str = "output") -> Any:
        """The Figure with mean, std and near-zero curves and colourful dimensions of the chosen sites."""
        from hookline.plots import overview

        return overview(self.rows(), site, kind)

    def diagnose(self, **how: Any) -> list[Finding]:
        """What is wrong by the rows in memory, the worst first; an empty list where nothing is. Takes what
        `hookline.diagnose` takes: baseline, rules, ignore."""
        from hookline.runs.diagnosing import diagnose

        return diagnose(self, **how)

    def training(self) -> Training:
        """The training as rules see it, by the rows in memory: series, scalars and wiring."""
        return self._training(self._curves_in_memory())

    def _training(self, curves: dict[Series, Curve]) -> Training:
        found = [Watched(site, kind, mode) for site, kind, _, mode in curves]
        values = list(curves.values())
        return Training(found, values.__getitem__, self._modules, getattr(self, "wiring", None))


def scalar_of(rows: list[Row]) -> Scalar:
    """The steps and values of rows of one name; of a step that is there twice, what came last counts."""
    last = {row["step"]: row["mean"] for row in rows}
    steps = sorted(last)
    return Scalar(np.asarray(steps, np.int64), np.asarray([last[step] for step in steps], np.float64))
