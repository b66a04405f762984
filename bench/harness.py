"""Harness: times the cases of a table side by side, so that a noisy machine is noisy for all of them.

The clock is the CPU time of this process, and torch uses one thread: other processes then disturb
little. Each round runs every case once, in an order shuffled anew; a result is the median over rounds
of what the case took relative to the plain case *of the same round*. Beside it stands the ratio of the
fastest rounds, which is what a quiet machine would tell.

Cheap tables get more rounds, not longer ones. In eight measurements each of the observer row, 60 rounds of 6 ms
gave ratios with a standard deviation of 2.1%, 20 rounds of 30 ms 4.4%. The two were measured one after the other
on a busy machine whose load changed meanwhile, so this is a hint and no proof.
"""

from __future__ import annotations

import gc
import random
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from importlib.util import find_spec
from typing import Any, Literal

WARM_UP = 2
SECONDS = 5.0
"""Rounds go on for so long, and at least for the table's number of them,"""
MOST_ROUNDS = 120
"""up to this number."""


@dataclass(frozen=True)
class Goal:
    """A bound on a case: on its ratio to another case, on its extra relative to the other's, or per unit."""

    limit: float
    of: Literal["ratio", "extra", "unit"] = "ratio"
    against: str = ""  # the name of the other case; the plain one where empty
    text: str = ""


@dataclass(frozen=True)
class Case:
    """One way to do the work of a table.

    `around` is entered before and left after the clock runs. `remark` reads the result of a run; what
    it says stands beside the timing. With `own_clock`, `run` returns the seconds itself.
    """

    name: str
    run: Callable[[], Any]
    around: Callable[[], AbstractContextManager[Any]] = nullcontext
    goal: Goal | None = None
    remark: Callable[[Any], str] | None = None
    needs: str = ""  # a package that may be missing
    own_clock: bool = False


@dataclass(frozen=True)
class Table:
    """Cases that do the same work; the first is the plain one that the others are compared with."""

    title: str
    cases: list[Case]
    unit: str = "ms"
    scale: float = 1e3  # units in a second
    per: int = 1  # what one run is divided by: its modules or calls
    inner: int = 1  # runs in one timed section, where one is too short for the clock
    rounds: int = 15
    absolute: bool = False  # whether units are of the case itself, not of what it adds to the plain one
    note: str = ""


@dataclass
class Line:
    """The result of one case, as text ready to be shown."""

    case: str
    ratio: str = ""
    iqr: str = ""
    best: str = ""
    unit: str = ""
    goal: str = ""
    reached: str = ""
    note: str = ""


@dataclass
class Measured:
    """The lines of a table, and how many rounds they are of."""

    lines: list[Line]
    rounds: int


@dataclass
class _Tally:
    seconds: list[float] = field(default_factory=list)
    note: str = ""
    failed: str = ""


def measure(table: Table, rounds: int | None = None, warm_up: int = WARM_UP) -> Measured:
    """The lines of the table. A case that raises is told with its error, and the others go on.

    With `rounds`, so many; else the table's number, and more where they are short.
    """
    least, seconds = (table.rounds, SECONDS) if rounds is None else (rounds, 0.0)
    tallies = {case.name: _Tally() for case in table.cases}
    shuffled = [case for case in table.cases if _is_usable(case, tallies[case.name])]
    order = random.Random(0)
    done = 0
    with _frozen():
        for number in range(-warm_up, 0):
            _round(table, shuffled, tallies, order, remarked=number == -1)
        for tally in tallies.values():
            tally.seconds.clear()
        end = time.perf_counter() + seconds
        while done < least or (done < MOST_ROUNDS and time.perf_counter() < end):
            _round(table, shuffled, tallies, order)
            done += 1
    return Measured([_line(table, case, tallies) for case in table.cases], done)


@contextmanager
def _frozen() -> Iterator[None]:
    """What there is already is left out of collections: torch's modules take longer than a short section does."""
    gc.collect()
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()


def _round(
    table: Table, cases: list[Case], tallies: dict[str, _Tally], order: random.Random, *, remarked: bool = False
) -> None:
    """Runs every case once; one that raises is taken away."""
    order.shuffle(cases)
    for case in list(cases):
        tally = tallies[case.name]
        try:
            seconds, note = _timed(case, table.inner, remarked=remarked)
        except Exception as error:
            tally.failed = f"{type(error).__name__}: {_first_sentence(str(error))}"
            cases.remove(case)
            continue
        tally.note += note
        tally.seconds.append(seconds)


def usable(case: Case) -> bool:
    """Whether what the case needs is installed."""
    return not case.needs or find_spec(case.needs) is not None


def _is_usable(case: Case, tally: _Tally) -> bool:
    if not usable(case):
        tally.failed = "not installed"
    return not tally.failed


def _timed(case: Case, inner: int, *, remarked: bool) -> tuple[float, str]:
    """Seconds per run, and what the case remarks about its result."""
    with case.around():
        # A collection costs whoever happens to trigger it, so none runs while the clock does.
        gc.collect()
        gc.disable()
        try:
            start = time.process_time()
            results = [case.run() for _ in range(inner)]  # let go of only when the clock has stopped
            seconds = (time.process_time() - start) / inner
        finally:
            gc.enable()
    result = results[-1]
    note = case.remark(result) if remarked and case.remark is not None else ""
    return (result if case.own_clock else seconds), note


def _line(table: Table, case: Case, tallies: dict[str, _Tally]) -> Line:
    tally = tallies[case.name]
    goal = case.goal
    line = Line(case.name, note=tally.note, goal="" if goal is None else goal.text or _bound(goal, table))
    if tally.failed:
        line.ratio = "-"
        line.reached = "" if goal is None else "no"
        line.note = tally.failed
        return line
    plain = table.cases[0]
    ratios = _per_round(tallies, "ratio", case.name, plain.name, plain.name)
    line.ratio, line.iqr = f"{statistics.median(ratios):.2f}x", _quartiles(ratios)
    line.best = f"{min(tally.seconds) / min(tallies[plain.name].seconds):.2f}x"
    whole = case is plain or table.absolute
    spent = tally.seconds if whole else _per_round(tallies, "unit", case.name, plain.name, plain.name)
    line.unit = f"{_in_units(table, spent):{'.4g' if whole else '+.4g'}} {table.unit}"
    if goal is not None:
        line.reached = _reached(table, case, goal, tallies)
    return line


def _reached(table: Table, case: Case, goal: Goal, tallies: dict[str, _Tally]) -> str:
    plain = table.cases[0].name
    other = goal.against or plain
    if tallies[other].failed:
        return f"? ({other}: {tallies[other].failed})"
    per_round = _per_round(tallies, goal.of, case.name, other, plain)
    if goal.of == "unit":
        found = _in_units(table, tallies[case.name].seconds if table.absolute else per_round)
        shown = f"{found:.1f}"
    else:
        found = statistics.median(per_round)
        fastest = {name: _Tally([min(tally.seconds)]) for name, tally in tallies.items() if tally.seconds}
        (best,) = _per_round(fastest, goal.of, case.name, other, plain)
        shown = f"{found:.3f}x (best {best:.3f}x)"
    return f"{'yes' if found <= goal.limit else 'no'}, {shown}"


def _per_round(tallies: dict[str, _Tally], of: str, name: str, other: str, plain: str) -> list[float]:
    """What a goal is about, for each round: a ratio, a ratio of extras, or extra seconds."""
    own, others, plains = tallies[name].seconds, tallies[other].seconds, tallies[plain].seconds
    if of == "ratio":
        return [a / b for a, b in zip(own, others, strict=True)]
    if of == "extra":
        return [(a - p) / (b - p) for a, b, p in zip(own, others, plains, strict=True)]
    return [a - p for a, p in zip(own, plains, strict=True)]


def _in_units(table: Table, seconds: list[float]) -> float:
    return statistics.median(seconds) * table.scale / table.per


def _bound(goal: Goal, table: Table) -> str:
    if goal.of == "unit":
        return f"<= {goal.limit:g} {table.unit}"
    other = f" {goal.against}" if goal.against else ""
    return f"<= {goal.limit:g}x{other}{' (extra)' if goal.of == 'extra' else ''}"


def _quartiles(values: list[float]) -> str:
    if len(values) < 2:
        return "-"
    low, _, high = statistics.quantiles(values, n=4, method="inclusive")
    return f"{low:.2f}-{high:.2f}"


def _first_sentence(text: str) -> str:
    line = " ".join(text.split())
    head, dot, _ = line.partition(". ")
    return (head + dot).strip()[:200]
