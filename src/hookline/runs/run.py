"""Run: what is in a run's folder, read while it is written or long after, without any framework."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

from hookline.errors import RunError
from hookline.globs import matcher
from hookline.optional import need
from hookline.runs.export import export, pieces
from hookline.runs.recordings import Recordings
from hookline.sinks.columns import arrow_table, polars_frame
from hookline.sinks.database import Reader
from hookline.sinks.frames import Row

TABLE = ("site", "kind", "step", "call", "rank", "mode")


def open_run(path: str | Path) -> Run:
    """The Run in a folder that `watch(..., to=folder)` wrote or is writing; RunError where there is none."""
    path = Path(path)
    # An empty file is one that a process is about to make.
    files = sorted(file for file in path.glob("rank*-*.sqlite") if file.stat().st_size) if path.is_dir() else []
    if not files:
        raise RunError(f"there is no run in {path}: a folder with a file rank*.sqlite is wanted.")
    return Run(path, [Reader(file) for file in files])


class Run:
    """A stored run; every reading sees what has been written by then."""

    def __init__(self, path: Path, readers: list[Reader]) -> None:
        self.path = path
        self._readers = readers

    @property
    def meta(self) -> dict[str, Any]:
        """Model, versions, command line, start and, if it has ended, how; of the first process that watched."""
        watched = [reader for reader in self._readers if reader.meta.get("by") != "record"]
        with closing(Reader((watched or self._readers)[0].path)) as reader:
            return reader.meta

    @property
    def sites(self) -> list[str]:
        """The names of all sites, in the order in which they first came."""
        return list(dict.fromkeys(one["site"] for reader in self._readers for one in reader.series().values()))

    @property
    def steps(self) -> list[int]:
        """Every step that has a row."""
        return sorted({step for reader in self._readers for step in reader.steps()})

    def rows(
        self,
        site: str | None = None,
        kind: str | None = None,
        stat: str | None = None,
        steps: tuple[int | None, int | None] | range | None = None,
    ) -> list[Row]:
        """The rows of a site (a name or glob), a kind, and steps from one to another, ordered by step.

        With `stat`, each row has that statistic only. Of a step that was written twice, what was written last.
        """
        first, last = _bounds(steps)
        matches = None if site is None else matcher(site)
        rows: list[Row] = []
        for reader in self._readers:
            series = {
                number: one
                for number, one in reader.series().items()
                if (matches is None or matches(one["site"])) and (kind is None or one["kind"] == kind)
            }
            rank = reader.meta.get("rank", 0)
            for number, row in reader.rows(set(series), first, last):
                one = series[number]
                rows.append({**one, "step": row.pop("step"), "rank": rank, **row})
        rows.sort(key=lambda row: row["step"])
        if isinstance(steps, range):
            rows = [row for row in rows if row["step"] in steps]
        if stat is not None:
            rows = [{name: row[name] for name in (*TABLE, stat) if name in row} for row in rows]
        return rows

    @property
    def recordings(self) -> Recordings:
        """What `record(..., to=run)` kept: recordings whose tensors are read when they are looked at."""
        kept = [one for reader in self._readers for one in reader.recordings()]
        return Recordings(self.path, sorted(kept, key=lambda one: one.made))

    def to_pandas(self) -> Any:
        """All rows as a pandas DataFrame."""
        return need("pandas").DataFrame(self.rows())

    def to_polars(self) -> Any:
        """All rows as a polars DataFrame; histograms as in `to_arrow`."""
        more = self.more()
        return need("polars").concat(
            [polars_frame([], more), *(polars_frame(rows, more) for rows in pieces(self))]
        )

    def to_arrow(self) -> Any:
        """All rows as an Arrow table.

        A histogram is its bins that are not empty (`hist_bins`) and how many values are in each
        (`hist_counts`); `hookline.lines.bins.edges()` has the edges of all bins.
        """
        more, meta = self.more(), self.meta
        tables = [arrow_table([], meta, more), *(arrow_table(rows, meta, more) for rows in pieces(self))]
        return need("pyarrow").concat_tables(tables)

    def export(self, path: str | Path, *, progress: Callable[[float], None] | None = None) -> Path:
        """Writes all rows to a .parquet or .csv file (that has no histograms) and returns its path.

        `progress` is told the share that is done.
        """
        export(self, Path(path), progress)
        return Path(path)

    def more(self) -> dict[str, bool]:
        """What rows have besides the columns that all have: {name: whether it is a number}."""
        return {name: number for reader in self._readers for name, number in reader.more().items()}

    def close(self) -> None:
        """Closes the files."""
        for reader in self._readers:
            reader.close()

    def __enter__(self) -> Run:
        return self

    def __exit__(self, *args: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<run {str(self.path)!r}, {len(self._readers)} files>"


def _bounds(steps: Any) -> tuple[int | None, int | None]:
    if steps is None:
        return None, None
    if isinstance(steps, range):
        return (min(steps), max(steps)) if len(steps) else (1, 0)
    first, last = steps
    return first, last
