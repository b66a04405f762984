"""Rows: the names of what is measured, and the measuring of one of them in the process that calls."""

from __future__ import annotations

from importlib import import_module

from bench.harness import WARM_UP, Table, measure
from bench.load import Meter
from bench.report import Result

ROWS = {
    "observer": "bench.observer",
    "gradients": "bench.gradients",
    "operators": "bench.operators",
    "record": "bench.record",
    "watch": "bench.watch",
    "compiled": "bench.compiled",
    "store": "bench.store",
    "summary": "bench.summary",
    "stop": "bench.stop",
    "nothing": "bench.nothing",
    "import": "bench.imports",
    "kernel": "bench.kernel",
    "growth": "bench.growth",
    "budget": "bench.budget",
}
QUICK = 3  # rounds


def measured_row(name: str, rounds: int | None, quick: bool) -> list[Result]:
    """The results of one row's tables."""
    import torch

    torch.set_num_threads(1)
    return [_measured(table, rounds, quick) for table in import_module(ROWS[name]).tables()]


def _measured(table: Table, rounds: int | None, quick: bool) -> Result:
    meter = Meter()
    measured = measure(table, rounds or (QUICK if quick else None), 1 if quick else WARM_UP)
    meter.warn(table.title)
    return Result(table.title, measured.lines, table.note, measured.rounds, meter.told())
