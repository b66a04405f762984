"""Run: what is in a run's folder, read while it is written or long after, without any framework."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from hookline.audit import Audit, AuditEntry
from hookline.choosing import bounds, check_stat, with_stat, within_steps
from hookline.diagnosis.finding import Finding
from hookline.diagnosis.training import Scalar, Training
from hookline.errors import InvalidArgument, RunError
from hookline.optional import need
from hookline.recording.budget import parse_bytes
from hookline.reporting import warn
from hookline.rows import SCALAR, Row
from hookline.runfiles.opening import run_files
from hookline.runfiles.reader import Reader
from hookline.runs.arrays import Columns, joined, with_histograms
from hookline.runs.asking import Chosen, chosen_series, within
from hookline.runs.diagnosing import diagnose, training_of
from hookline.runs.export import export, pieces
from hookline.runs.recordings import Recordings
from hookline.runs.scalars import scalar_series, scalars_of
from hookline.tables import arrow_table, polars_frame
from hookline.wiring import Wiring

TOLD = 3
"""So many damages are told in one warning; `Run.damage` has all."""
ROW_BYTES, HISTOGRAM_BYTES = 200, 1000
"""About so much a row takes in a table, and its histogram."""


def open_run(path: str | Path) -> Run:
    """The Run in a folder that `watch(..., to=folder)` wrote or is writing; RunError where there is none."""
    path = Path(path)
    files = run_files(path)
    if not files:
        raise RunError(f"there is no run in {path}: expected a folder with a file rank*.sqlite.")
    readers: list[Reader] = []
    errors: list[RunError] = []
    for file in files:
        try:
            readers.append(Reader(file))
        except RunError as error:  # of one process of many: the others' rows are there
            errors.append(error)
    if not readers:
        raise errors[0]
    run = Run(path, readers, [str(error) for error in errors])
    run._tell_damage()
    return run


class Run:
    """A stored run; every reading sees what has been written by then."""

    def __init__(self, path: Path, readers: list[Reader], unreadable: Sequence[str] = ()) -> None:
        self.path = path
        self._readers = readers
        self._unreadable = list(unreadable)
        self._told: set[str] = set()

    @property
    def readers(self) -> list[Reader]:
        """Who reads its files, one for each process that wrote; for those who want many series at once."""
        return list(self._readers)

    @property
    def damage(self) -> list[str]:
        """What of the run could not be read so far, a sentence each: files, frames with their steps, facts.

        It is left out of every answer, and told by a warning when it is met.
        """
        return [*self._unreadable, *(told for reader in self._readers for told in reader.damage)]

    @property
    def meta(self) -> dict[str, Any]:
        """Model, versions, command line, start and, if it has ended, how; of the first process that watched."""
        facts = self._facts()
        facts.pop("wiring", None)
        return facts

    @property
    def wiring(self) -> Wiring:
        """How the training hangs together; empty where the run has nothing of it, or that is damaged."""
        found = self._facts().get("wiring")
        self._tell_damage()
        return Wiring() if found is None else Wiring.from_json(found)

    def _facts(self) -> dict[str, Any]:
        watched = [reader for reader in self._readers if reader.meta.get("by") != "record"]
        with closing(Reader((watched or self._readers)[0].path)) as reader:
            return reader.meta

    @property
    def sites(self) -> list[str]:
        """The names of all sites, in the order in which they first came."""
        every = [one for reader in self._readers for one in reader.series().values()]
        self._tell_damage()
        return list(dict.fromkeys(one["site"] for one in every if one["kind"] != SCALAR))

    @property
    def steps(self) -> list[int]:
        """Every step that has a row; one with scalars only is none of them."""
        return self._steps(scalar_series)

    def all_steps(self) -> list[int]:
        """Every step that has a row or a scalar."""
        return self._steps(lambda reader: set())

    def _steps(self, left_out: Callable[[Reader], set[int]]) -> list[int]:
        found = {step for reader in self._readers for step in reader.steps(left_out(reader))}
        self._tell_damage()
        return sorted(found)

    def rows(
        self,
        site: str | None = None,
        kind: str | None = None,
        stat: str | None = None,
        steps: tuple[int | None, int | None] | range | None = None,
    ) -> list[Row]:
        """The rows of a site (a name or glob), a kind, and steps from one to another, ordered by step.

        With `stat`, each row has that statistic only. Of a step that was written twice, what was written last
        counts. Scalars are there by kind="scalar" only. A site that the run has not is a NoSuchSite; a kind or
        statistic that it has not, an InvalidArgument. A row is a dict of ten kilobytes with its histogram:
        `columns` has a thousand in the place of one.
        """
        chosen = self._chosen(site, kind, [] if stat is None else [stat])
        return with_stat(within_steps(self._read(chosen, steps), steps), stat)

    def all_rows(self, steps: tuple[int | None, int | None] | None = None) -> list[Row]:
        """The rows of every site, and the scalars."""
        return self._read(self._chosen(None, None, [], scalars=True), steps)

    def _read(self, chosen: list[Chosen], steps: Any) -> list[Row]:
        first, last = bounds(steps)
        rows: list[Row] = []
        for reader, series in chosen:
            for _, some in reader.rows(set(series), first, last):
                rows += some
        self._tell_damage()
        return sorted(rows, key=lambda row: row["step"])

    def scalars(self) -> dict[str, Scalar]:
        """The numbers of the training by name: "loss", "lr", "grad_norm", those of `log`; of the lowest rank.

        An empty dict where there are none: in a run that an older version wrote, say.
        """
        for reader in sorted(self._readers, key=lambda one: int(one.meta.get("rank", 0))):
            if numbers := scalar_series(reader):
                found = scalars_of(reader, numbers)
                self._tell_damage()
                return found
        return {}

    def columns(
        self,
        site: str | None = None,
        kind: str | None = None,
        stat: str | Sequence[str] | None = None,
        steps: tuple[int | None, int | None] | range | None = None,
        *,
        histograms: bool = False,
    ) -> Columns:
        """The same as arrays, {name: array}, one place for each row, ordered by step.

        A million rows take 150 MB, and 50 MB with one statistic (`stat`, a name or several). With `histograms`
        also `hist_bins` and `hist_counts`, the bins that are not empty and their counts, row after row; those of
        row n are from `hist_starts[n]` to `hist_starts[n + 1]`, and `hist_lengths[n]` is -1 where it has none.
        """
        stats = None if stat is None else [stat] if isinstance(stat, str) else list(stat)
        return self._columns(self._chosen(site, kind, stats or []), stats, steps, histograms)

    def _columns(self, chosen: list[Chosen], stats: list[str] | None, steps: Any, histograms: bool) -> Columns:
        first, last = bounds(steps)
        parts = (
            (series, reader.meta.get("rank", 0), *part)
            for reader, series in chosen
            for part in reader.parts(set(series), first, last, hists=histograms)
        )
        found = within(joined(parts, stats, histograms), steps)
        self._tell_damage()
        return found

    def chunks(self, rows: int = 100_000, *, histograms: bool = False) -> Iterator[Columns]:
        """All rows, with scalars, as `columns` has them, some steps at a time, about so many rows each."""
        if type(rows) is not int or rows < 1:
            raise InvalidArgument(f"rows={rows!r}: expected a whole number of rows above 0.")
        return pieces(self, read=lambda steps: self._everything(steps, histograms), most=rows, count=_length)

    def _everything(self, steps: tuple[int, int] | None, histograms: bool) -> Columns:
        return self._columns(self._chosen(None, None, [], scalars=True), None, steps, histograms)

    def count(self) -> int:
        """How many rows there are, with scalars."""
        return sum(reader.count() for reader in self._readers)

    def table_bytes(self, *, histograms: bool = False) -> int:
        """About how much memory `to_pandas` takes."""
        more = 8 * len(self.more())
        return self.count() * (ROW_BYTES + more + HISTOGRAM_BYTES * histograms)

    @property
    def recordings(self) -> Recordings:
        """What `record(..., to=run)` kept: recordings whose tensors are read when they are looked at."""
        kept = [one for reader in self._readers for one in reader.recordings()]
        self._tell_damage()
        return Recordings(self.path, sorted(kept, key=lambda one: one.made))

    def plot(self, site: str | None = None, kind: str = "output") -> Any:
        """The Figure with mean, std and near-zero curves and colourful dimensions of the chosen sites."""
        from hookline.plots import overview

        return overview(self.rows(site, kind), site, kind)

    def diagnose(self, **how: Any) -> list[Finding]:
        """What is wrong by all rows, the worst first; an empty list where nothing is. Takes what
        `hookline.diagnose` takes: baseline, rules, ignore."""
        return diagnose(self, **how)

    def training(self) -> Training:
        """The training as rules see it: series, scalars and wiring. To be closed, or used in a `with`."""
        return training_of(self.path)

    def audit(self) -> Audit:
        """For every site that was asked for: measured so many times, or never, and why.

        The watch notes it when it ends. Without it (the run goes on, was killed, or has recordings only) there is
        what the rows tell: how many each module has.
        """
        meta = self.meta
        if (noted := meta.get("audit")) is not None:
            return Audit(AuditEntry(site, fired, why) for site, fired, why in noted)
        unknown = "the run has no row of it, and no watch has noted why"
        kinds = {one["kind"] for reader in self._readers for one in reader.series().values()}
        counts = Counter(self.columns(kind="output", stat="count")["site"].tolist() if "output" in kinds else ())
        modules = [name for name, _ in meta.get("sites", [])]
        return Audit(AuditEntry(name, counts[name], None if counts[name] else unknown) for name in modules)

    def to_pandas(self, *, histograms: bool = False, limit: int | str = "8GB") -> Any:
        """All rows, with scalars, as a pandas DataFrame; InvalidArgument where it needs more memory than `limit`.

        `table_bytes` tells how much it takes. With `histograms`, each row has `hist_bins`, the bins that are not
        empty, and `hist_counts`. `chunks` has runs of any size, piece by piece.
        """
        pandas, needed, most = need("pandas"), self.table_bytes(histograms=histograms), parse_bytes(limit)
        if needed > most:
            raise InvalidArgument(
                f"a table of {self.count():,} rows takes about {needed / 1e9:.1f} GB, and limit={limit!r}. "
                "Raise it, ask for one site (run.columns(site, kind, stat)), or go by pieces (run.chunks())."
            )
        return pandas.DataFrame(with_histograms(self._everything(None, histograms)))

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
        found: dict[str, bool] = {}
        for reader in self._readers:
            for name, is_number in reader.more().items():
                found[name] = found.get(name, True) and is_number
        return found

    def _chosen(
        self, site: str | None, kind: str | None, stats: list[str], *, scalars: bool = False
    ) -> list[Chosen]:
        """The series that are meant, for each file; an error where there is nothing of that name."""
        there = [(reader, reader.series()) for reader in self._readers]
        modules = [name for reader in self._readers for name, _ in reader.meta.get("sites", [])]
        found = chosen_series(there, site, kind, modules, scalars=scalars)
        for stat in stats:
            check_stat(stat, self.more)
        return found

    def _tell_damage(self) -> None:
        """Warns of what was found to be damaged since the last time."""
        new = [told for told in self.damage if told not in self._told]
        self._told.update(new)
        if new:
            more = f" And {len(new) - TOLD} more: see run.damage." if len(new) > TOLD else ""
            text = f"a part of the run can't be read, the rest is. {' '.join(new[:TOLD])}{more}"
            warn(text, stacklevel=3)

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


def _length(columns: Columns) -> int:
    return len(columns["step"])
