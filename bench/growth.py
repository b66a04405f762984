"""Row growth: whether what one site, one step or one row costs stays the same when there are many of them.

Each line is the cost of one of them; the ratio is to the smallest number, so 1.00x is flat.
"""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import nn

import hookline
from bench.harness import Case, Goal, Table
from bench.store import step_of
from bench.summary import in_own_process
from hookline.rows import Rows

SITES = (10, 100, 1_000, 10_000)
STEPS = (10, 1_000, 100_000)
ROWS = (1_000, 10_000, 100_000, 1_000_000)
LAST_STEPS = 5
STEP_SITES = 4
MOST_ANEW = 1_000
"""A watch of so many steps is begun anew for each round."""
FLAT = Goal(1.25, text="flat: <= 1.25x")
ROWS_OF_A_STEP = 20
NOTE = "A ratio is the cost of one to that at the smallest number. Goals are on the largest."


def tables() -> Iterator[Table]:
    models = {count: linears(count) for count in SITES}
    peak = in_own_process(_watch, partial(linears, SITES[-1])) - in_own_process(
        _forward, partial(linears, SITES[-1])
    )
    yield _table("A site, forward", SITES, lambda count: partial(_forward, *models[count]))
    yield _table("A site, hookline.record, whole cycle", SITES, lambda count: partial(_record, *models[count]))
    yield _table(
        "A site, hookline.watch, whole cycle",
        SITES,
        lambda count: partial(_watch, *models[count]),
        note=f"Memory of a watch of {SITES[-1]:,} sites and one step: {peak:.0f} MB, "
        f"{1e3 * peak / SITES[-1]:.1f} kB a site.",
    )
    yield _table("A site, a step of an open watch", SITES, lambda count: Open(*models[count]))
    yield from _steps()
    yield from _reading()


def linears(count: int) -> tuple[nn.Module, torch.Tensor]:
    """So many tiny Linear modules in a row, and an input."""
    torch.manual_seed(0)
    return nn.Sequential(*(nn.Linear(4, 4) for _ in range(count))).eval(), torch.randn(2, 4)


def _table(
    title: str, counts: tuple[int, ...], made: Callable[[int], Callable[[], Any]], *, note: str = "", **more: Any
) -> Table:
    """A case for each number, which tells the seconds of one."""
    most = counts[-1]

    def case(count: int) -> Case:
        goal = FLAT if count == most else None
        return Case(f"{count:,}", partial(_per_one, made(count), count), own_clock=True, goal=goal)

    told = {"unit": "us", "scale": 1e6, "absolute": True, "rounds": 5, "note": f"{note} {NOTE}".strip(), **more}
    return Table(title, [case(count) for count in counts], **told)


def _per_one(run: Callable[[], Any], count: int) -> float:
    """Seconds for one of `count`, from so many runs as take a twentieth of a second."""
    runs, begun = 0, time.process_time()
    while (spent := time.process_time() - begun) < 0.05 or not runs:
        run()
        runs += 1
    return spent / runs / count


def _forward(model: nn.Module, x: torch.Tensor) -> None:
    with torch.no_grad():
        model(x)


def _record(model: nn.Module, x: torch.Tensor) -> Any:
    with torch.no_grad(), hookline.record(model) as recording:
        model(x)
    return recording


def _watch(model: nn.Module, x: torch.Tensor) -> Any:
    with torch.no_grad(), hookline.watch(model, grads=False, params=False) as watch:
        model(x)
    return watch


class Open:
    """A step of a watch that stays open."""

    def __init__(self, model: nn.Module, x: torch.Tensor, **more: Any) -> None:
        self.model, self.x, self.more = model, x, more
        self.watch: Any = None

    def close(self) -> None:
        self.watch.__exit__(None, None, None)

    def __call__(self) -> None:
        if self.watch is None:
            self.watch = hookline.watch(self.model, grads=False, params=False, **self.more)
            self.watch.__enter__()
        with torch.no_grad():
            self.model(self.x)


def _steps() -> Iterator[Table]:
    """The last steps of a watch that has written so many."""
    folder = Path(tempfile.mkdtemp(prefix="hookline-bench-"))
    watches = {count: Stepping(count, folder / str(count)) for count in STEPS}
    cases = [
        Case(f"{count:,}", one, own_clock=True, goal=FLAT if count == STEPS[-1] else None)
        for count, one in watches.items()
    ]
    title = f"A step of an open watch of {STEP_SITES} sites that writes to a run, after so many steps"
    note = f"Time of the thread that trains, of the last {LAST_STEPS} steps. {NOTE}"
    try:
        yield Table(title, cases, unit="us", scale=1e6, absolute=True, rounds=9, note=note)
    finally:
        for one in watches.values():
            one.close()
        shutil.rmtree(folder)


class Stepping:
    """Tells the seconds of a step after so many; a watch with many steps is kept, and goes on the next time."""

    def __init__(self, count: int, folder: Path) -> None:
        self.count, self.folder = count, folder
        self.kept: Open | None = None

    def __call__(self) -> float:
        one, before = self.kept, LAST_STEPS
        if one is None:
            self.kept = one = Open(*linears(STEP_SITES), to=f"{self.folder}-*")
            before = self.count - LAST_STEPS
        for _ in range(before):  # also of one that goes on: the others have emptied the caches meanwhile
            one()
        begun = time.thread_time()
        for _ in range(LAST_STEPS):
            one()
        spent = time.thread_time() - begun
        if self.count <= MOST_ANEW:
            self.close()
        return spent / LAST_STEPS

    def close(self) -> None:
        if self.kept is not None:
            self.kept.close()
            self.kept = None


def _reading() -> Iterator[Table]:
    """Columns and steps of runs with so many rows."""
    folder = Path(tempfile.mkdtemp(prefix="hookline-bench-"))
    step = Rows.of(step_of(0)[:ROWS_OF_A_STEP])
    try:
        for count in ROWS:
            write(folder / str(count), step, count // len(step))
        runs = {count: hookline.open_run(folder / str(count)) for count in ROWS}
        yield _table(
            "A row, read by run.columns(stat='mean')", ROWS, lambda n: partial(runs[n].columns, stat="mean")
        )
        yield _table(
            "A row, run.columns of one site", ROWS, lambda n: partial(runs[n].columns, "layer0", "output")
        )
        yield _table("A row, run.steps", ROWS, lambda n: lambda: runs[n].steps)
        yield _table("A row, open_run and steps", ROWS, lambda n: partial(_opened, folder / str(n)))
    finally:
        shutil.rmtree(folder)


def write(folder: Path, step: Rows, steps: int) -> None:
    """A run with the same rows at every step."""
    store = hookline.RunStore(folder)
    for number in range(steps):
        moved = step.steps * 0 + number
        store.write(Rows(step.series, moved, step.integers, step.floats, step.hists, step.extra))
    store.close()


def _opened(folder: Path) -> list[int]:
    with hookline.open_run(folder) as run:
        return run.steps
