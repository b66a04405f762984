"""Profiling: where the time of a row's cases goes, by function; for whoever wants to make one of them faster."""

from __future__ import annotations

import cProfile
import pstats
import time
from importlib import import_module
from pathlib import Path
from typing import Any

from bench.harness import WARM_UP, Case, Table, usable
from bench.rows import ROWS

SECONDS = 1.0
"""A case is run again for so long, and at least LEAST times."""
LEAST = 3
SHOWN = 25
OURS = "hookline"


def profiled_row(name: str, wanted: str) -> None:
    """Prints the profile of the row's cases whose names have a text; of hookline's where it is empty."""
    import torch

    torch.set_num_threads(1)
    for table in import_module(ROWS[name]).tables():
        for case in chosen(table, wanted):
            print(f"{table.title}: {case.name}", profiled(case), sep="\n", flush=True)


def chosen(table: Table, wanted: str) -> list[Case]:
    """The cases that are meant; where none has hookline's name, all but the plain one."""
    text = wanted or OURS
    found = [case for case in table.cases if text.lower() in case.name.lower()]
    if not found and not wanted:
        found = table.cases[1:]
    return [case for case in found if usable(case)]


def profiled(case: Case) -> str:
    """The functions of the thread that calls, by own and by cumulative time, in microseconds of one run."""
    with case.around():
        for _ in range(WARM_UP):
            case.run()
        profile, runs, end = cProfile.Profile(), 0, time.perf_counter() + SECONDS
        while runs < LEAST or time.perf_counter() < end:
            profile.runcall(case.run)
            runs += 1
    stats: Any = pstats.Stats(profile)
    found = [(key, *values[1:4]) for key, values in stats.stats.items()]
    parts = [f"{runs} runs; calls and microseconds of one run"]
    for title, at in (("own time", 2), ("cumulative time", 3)):
        parts += [f"  by {title}:", f"  {'calls':>10} {'own':>12} {'cumulative':>12}"]
        largest = sorted(found, key=lambda one: one[at], reverse=True)[:SHOWN]
        parts += [
            f"  {calls / runs:>10,.1f} {own * 1e6 / runs:>12,.1f} {total * 1e6 / runs:>12,.1f}  {_place(key)}"
            for key, calls, own, total in largest
        ]
    return "\n".join([*parts, ""])


def _place(key: tuple[str, int, str]) -> str:
    """Where a function is, from the package on."""
    file, line, name = key
    return name if file == "~" else f"{'/'.join(Path(file).parts[-3:])}:{line} {name}"
