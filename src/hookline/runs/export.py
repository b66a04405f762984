"""Export: the rows of a run handed on piece by piece, so that a run of any size needs little memory."""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hookline.errors import InvalidArgument, RunError
from hookline.optional import need
from hookline.rows import Row
from hookline.tables import HISTOGRAM, NAMES, arrow_table, columns_of

if TYPE_CHECKING:
    from hookline.runs.run import Run

ROWS = 10_000
"""About so many rows are in a piece."""

Progress = Callable[[float], None]


def pieces(
    run: Run,
    progress: Progress | None = None,
    *,
    read: Callable[[tuple[int, int]], Any] | None = None,
    most: int | None = None,
    count: Callable[[Any], int] = len,
) -> Iterator[Any]:
    """All rows, ordered by step, some steps at a time; `progress` is told the share that is done.

    `read` gets the rows from one step to another, `count` tells how many it got; about `most` are in a piece.
    """
    read = read or (lambda steps: run.all_rows(steps))
    most = ROWS if most is None else most
    steps = run.all_steps()
    at, size = 0, 1
    while at < len(steps):
        some = steps[at : at + size]
        rows = read((some[0], some[-1]))
        at += size
        size = max(1, min(most * len(some) // max(count(rows), 1), 4 * size))
        yield rows
        if progress is not None:
            progress(min(at / len(steps), 1.0))


def export(run: Run, path: Path, progress: Progress | None = None) -> None:
    """Writes all rows to a .parquet or .csv file."""
    writers: dict[str, Callable[[Run, Path, Iterator[list[Row]]], None]] = {".parquet": _parquet, ".csv": _csv}
    if path.suffix not in writers:
        raise InvalidArgument(f"{path.name!r}: expected a file that ends in .parquet or .csv.")
    try:
        writers[path.suffix](run, path, pieces(run, progress))
    except OSError as error:
        raise RunError(f"{path} can't be written: {error}") from error


def _parquet(run: Run, path: Path, some: Iterator[list[Row]]) -> None:
    parquet, more, meta = need("pyarrow.parquet", what="a .parquet file"), run.more(), run.meta
    with parquet.ParquetWriter(path, arrow_table([], meta, more).schema, compression="zstd") as writer:
        for rows in some:
            writer.write_table(arrow_table(rows, meta, more))


def _csv(run: Run, path: Path, some: Iterator[list[Row]]) -> None:
    more = run.more()
    names: list[str] = [*NAMES, *more]
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(names)
        for rows in some:
            columns: dict[str, list[Any]] = columns_of(rows, more)
            writer.writerows(zip(*(columns[name] for name in names if name not in HISTOGRAM), strict=True))
