"""Row store: a million rows written to a run's folder, and read from it."""

from __future__ import annotations

import json
import multiprocessing
import shutil
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

import hookline
from bench.harness import Case, Goal, Table
from bench.summary import status
from hookline.lines import Stats
from hookline.rows import Rows

LAYERS, STEPS = 200, 2500
KINDS = ("output", "grad_output")
DIFFERENT = 25
"""So many steps differ; then their numbers come again."""

STEPS_GOAL = Goal(50, "unit")
WRITING_GOAL = Goal(0.8)


def tables() -> Iterator[Table]:
    folder = Path(tempfile.mkdtemp(prefix="hookline-bench-"))
    try:
        with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as process:
            facts = process.submit(write_a_million, folder / "run").result()
        run = hookline.open_run(folder / "run")
        yield Table(
            "Reading from a run of 1,000,000 rows",
            [
                Case("a site, one kind, 2,500 steps", partial(run.rows, "layer100", "output"), remark=_rows),
                Case("which steps there are", lambda: run.steps, goal=STEPS_GOAL, remark=_steps),
                Case("which steps there are, opening it", partial(_opened_steps, folder / "run"), remark=_steps),
                Case("one statistic of all rows", partial(run.columns, stat="mean")),
                Case("all 400 series at one step", partial(run.rows, steps=(1200, 1200)), remark=_rows),
                Case("hookline.open_run and its facts", partial(_facts, folder / "run")),
            ],
            absolute=True,
            rounds=5,
            note=facts,
        )
        some = [step_of(number) for number in range(DIFFERENT)]
        as_columns = [Rows.of(rows) for rows in some]
        yield Table(
            "Writing 10,000 rows (25 steps of 400)",
            [
                Case("JSON lines, without histograms", partial(_as_json, some, folder / "rows.json")),
                Case(
                    "hookline.RunStore, as watch writes", partial(_stored, as_columns, folder), goal=WRITING_GOAL
                ),
                Case("hookline.RunStore, rows as dicts", partial(_stored, some, folder), goal=WRITING_GOAL),
                Case("hookline.RunStore, dicts without histograms", partial(_stored, _plain(some), folder)),
            ],
            absolute=True,
            unit="us/row",
            scale=1e6,
            per=DIFFERENT * LAYERS * len(KINDS),
            rounds=7,
            note="The time of the thread that writes is counted; training does not wait for it.",
        )
    finally:
        shutil.rmtree(folder)


def write_a_million(folder: Path) -> str:
    """How long it took, how large it is, and what memory the process had on the way."""
    templates = [step_of(number) for number in range(DIFFERENT)]
    store = hookline.RunStore(folder)
    memory = [f"{status('VmRSS'):.0f} MB before the first"]
    begun, cpu = time.perf_counter(), time.process_time()
    for step in range(STEPS):
        store.write([{**row, "step": step} for row in templates[step % DIFFERENT]])
        if step + 1 in (STEPS // 10, STEPS // 4, STEPS // 2, 3 * STEPS // 4, STEPS):
            memory.append(f"{status('VmRSS'):.0f} MB after {(step + 1) / STEPS:.0%}")
    store.close()
    seconds, cpu = time.perf_counter() - begun, time.process_time() - cpu
    rows = STEPS * LAYERS * len(KINDS)
    size = sum(file.stat().st_size for file in folder.iterdir())
    return (
        f"Written by one process at full speed: {rows:,} rows with histograms in {seconds:.0f} s "
        f"({rows / seconds:,.0f} rows/s; CPU {cpu:.0f} s), {size / rows:.0f} bytes a row, {size / 1e6:.0f} MB. "
        f"Memory: {', '.join(memory)}."
    )


def step_of(number: int) -> list[dict[str, Any]]:
    """The rows of one step: 512 normal values, of another size in each layer."""
    random = np.random.default_rng(number)
    rows = []
    for layer in range(LAYERS):
        for kind in KINDS:
            size = 10.0 ** random.uniform(-6, 1)
            base = {"site": f"layer{layer}", "kind": kind, "step": number, "call": 0, "rank": 0, "mode": "train"}
            rows.append({**base, **Stats.of(np.float32(random.normal(size=512) * size)).row()})
    return rows


def _plain(steps: list[list[dict[str, Any]]]) -> list[list[dict[str, Any]]]:
    return [[{**row, "hist": None} for row in rows] for rows in steps]


def _stored(steps: Sequence[Rows | list[dict[str, Any]]], folder: Path) -> None:
    """Writes a run of its own in the folder."""
    store = hookline.RunStore(folder / "small-*")
    for rows in steps:
        store.write(rows)
    store.close()


def _as_json(steps: list[list[dict[str, Any]]], file: Path) -> None:
    with file.open("w") as out:
        for rows in _plain(steps):
            out.writelines(json.dumps(row) + "\n" for row in rows)


def _facts(folder: Path) -> dict[str, Any]:
    with hookline.open_run(folder) as run:
        return run.meta


def _opened_steps(folder: Path) -> list[int]:
    with hookline.open_run(folder) as run:
        return run.steps


def _steps(found: list[int]) -> str:
    return f"{len(found):,} steps"


def _rows(found: list[Any]) -> str:
    return f"{len(found):,} rows"
