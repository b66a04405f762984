"""report: a run as one HTML file that opens from disk, with the views of the live page."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from hookline.bundle import html_path, write
from hookline.page import queries
from hookline.page.viewed import ViewedRun
from hookline.runs.run import Run

STATIC = Path(__file__).parent / "static"
MOST_NUMBERS = 1_200_000
"""About so many numbers are in the curves of a report: four megabytes."""
SCALAR_POINTS = 1000
MOST_ROWS = 10_000
MOST_ONSETS = 20
"""Of so many findings the step at which they begin can be chosen, also where not all steps can."""
MOST_PIXELS = 8_000_000

Progress = Callable[[float], None]


def report(run: Run | str | Path, path: str | Path, *, progress: Progress | None = None) -> Path:
    """Writes a run to a self-contained HTML file and returns its path.

    It has the views of the live page, of the lowest rank. Long runs are shown with fewer points: of each
    stretch of steps the lowest and the highest value. `progress` is told the share that is done.

    >>> import tempfile
    >>> from hookline.runfiles.store import RunStore
    >>> folder = Path(tempfile.mkdtemp())
    >>> store = RunStore(folder / "run")
    >>> store.write([{"site": "fc", "kind": "output", "call": 0, "mode": "train", "step": 0, "mean": 0.5}])
    >>> store.close()
    >>> report(folder / "run", folder / "run.html").name
    'run.html'
    """
    folder = run.path if isinstance(run, Run) else Path(run)
    path = html_path(path)
    tell = progress or (lambda share: None)
    opened = ViewedRun(folder, folder.resolve().name)
    try:
        opened.catch_up()
        opened.look(lambda share: tell(0.4 * share))
        data = _everything(opened, tell)
    finally:
        opened.close()
    write(path, f"{folder.resolve().name} · hookline", data, STATIC)
    tell(1.0)
    return path


def _everything(run: ViewedRun, tell: Progress) -> dict[str, Any]:
    """What the page would ask for, asked in advance."""
    about = queries.describe(run)
    rank = min((series.rank for series in run.series), default=0)
    bundles: dict[tuple[str, str], list[int]] = {}
    for number, series in enumerate(run.series):
        if series.rank == rank:
            bundles.setdefault((series.kind, series.mode), []).append(number)
    numbers = sorted(number for (kind, _), some in bundles.items() if kind != "scalar" for number in some)
    count = max(len(numbers), 1)
    points = max(60, min(600, MOST_NUMBERS // (count * len(about["stats"]))))
    columns = max(40, min(200, MOST_PIXELS // (count * 60)))
    every = about["steps"]
    shown = np.unique(np.linspace(0, len(every) - 1, max(6, min(60, MOST_ROWS // count))).astype(int))
    onsets = {one["step"] for one in about["findings"][:MOST_ONSETS]} & set(every)
    steps = sorted({*(every[place] for place in shown.tolist()), *onsets}) if every else []
    curves, heat, at = [], {}, {}
    for done, ((kind, _), some) in enumerate(bundles.items()):
        stats, wide = (["mean"], SCALAR_POINTS) if kind == "scalar" else (about["stats"], points)
        answers = {stat: _curves(run, some, stat, wide) for stat in stats}
        x = next(iter(answers.values()), {})
        curves.append(
            {
                "series": some,
                **{name: x.get(name) for name in ("x", "spans", "bad")},
                "stats": {stat: answer["values"] for stat, answer in answers.items()},
            }
        )
        tell(0.4 + 0.2 * (done + 1) / len(bundles))
    for done, number in enumerate(numbers):  # as they are stored: each block of histograms is read once
        heat[number] = queries.heat(run, {"series": [number], "columns": columns})["images"][0]
        tell(0.6 + 0.2 * (done + 1) / len(numbers))
    for done, step in enumerate(steps):
        at[step] = _at(run, numbers, step)
        tell(0.8 + 0.2 * (done + 1) / len(steps))
    return {"about": {**about, "atSteps": steps}, "curves": curves, "heat": heat, "at": at}


def _curves(run: ViewedRun, numbers: list[int], stat: str, points: int) -> dict[str, Any]:
    """All series of a bundle on one axis, however many they are."""
    return queries.curves(run, {"series": numbers, "stat": stat, "points": points}, most=len(numbers))


def _at(run: ViewedRun, numbers: list[int], step: int) -> dict[int, Any]:
    rows = queries.at(run, {"series": numbers, "step": step}, most=len(numbers))["rows"]
    return {number: row for number, row in zip(numbers, rows, strict=True) if row}
