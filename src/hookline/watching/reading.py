"""Reading: the rows of a watch, asked for as those of a run (`hookline.rows.HasRows`)."""

from __future__ import annotations

from typing import Any, NamedTuple

from hookline.choosing import check_stat, with_stat, within_steps
from hookline.diagnosis.diagnose import findings_of, in_order, owners
from hookline.diagnosis.finding import Finding
from hookline.rows import FIXED, Curve, Row, Series
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
    def _modules(self) -> list[str]:
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
        that statistic only.
        """
        rows = self._rows_in_memory(site, kind, step)
        if stat is not None:
            check_stat(stat, lambda: dict.fromkeys(name for row in rows for name in row if name not in FIXED))
        return with_stat(within_steps(rows, steps), stat)

    def to_pandas(self, *, histograms: bool = False) -> Any:
        """The rows in memory as a pandas DataFrame, as `Run.to_pandas` has them."""
        return pandas_frame(self.rows(), histograms=histograms)

    def to_polars(self) -> Any:
        """The rows in memory as a polars DataFrame."""
        return polars_frame(self.rows())

    def to_arrow(self) -> Any:
        """The rows in memory as an Arrow table."""
        return arrow_table(self.rows())

    def plot(self, site: str | None = None, kind: str = "output") -> Any:
        """The Figure with mean, std and near-zero curves and colourful dimensions of the chosen sites."""
        from hookline.plots import overview

        return overview(self.rows(), site, kind)

    def diagnose(self) -> list[Finding]:
        """What is wrong by the rows in memory, the most severe first; an empty list where nothing is."""
        curves = self._curves_in_memory()
        found = [Watched(site, kind, mode) for site, kind, _, mode in curves]
        values = list(curves.values())
        owner = owners(self._modules, [one.site for one in found])
        return in_order(findings_of(found, lambda number: values[number], owner))
