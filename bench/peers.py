"""Peers: the same work with hookline and with other tools, each measured in a process of its own.

`python -m bench --peers` writes docs/peers.md and its plot; `bench/peers_page.py` has their form.
"""

from __future__ import annotations

import gc
import pickle
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import nn

from bench.behaviour import after_an_exception, of_a_compiled_model
from bench.harness import Case, Line, Table, measure
from bench.imports import import_cases
from bench.load import Meter
from bench.models import gpt2, resnet50, tiny, twin
from bench.record import compared
from bench.recorders import clone, raw
from bench.summary import growth_here
from bench.tools import TOOLS, Recorder, Tool

MODELS = {"ResNet-50": resnet50, "GPT-2 size": gpt2, "1000 tiny modules": tiny}
ROUNDS = {"ResNet-50": 5, "GPT-2 size": 5, "1000 tiny modules": 15}
SECONDS = 6.0
"""A slow tool gets as many rounds as fit into this, and at least QUICK."""
QUICK, IMPORT_ROUNDS = 2, 2
PLAIN = "without"


@dataclass
class Found:
    """What was measured of a tool: lines by the kind of work and its subject, and what it was seen to do."""

    tool: str
    lines: dict[tuple[str, str], Line] = field(default_factory=dict)
    facts: dict[str, str] = field(default_factory=dict)


@dataclass
class Comparison:
    """All that was found, and how busy the machine was."""

    found: list[Found]
    imports: list[Line]
    load: str


def compared_peers(quick: bool) -> Comparison:
    """Every tool measured, one after the other."""
    meter = Meter()
    found = []
    for name in TOOLS:
        print(f"{name} ...", file=sys.stderr, flush=True)
        found.append(_in_own_process(name, quick))
    imports = measured_imports(1 if quick else IMPORT_ROUNDS)
    meter.warn("peers")
    return Comparison(found, imports, meter.told())


def _in_own_process(name: str, quick: bool) -> Found:
    # A plain process: torchlens refuses to work in one of multiprocessing's.
    with tempfile.TemporaryDirectory(prefix="hookline-bench-") as folder:
        file = Path(folder) / "found"
        code = f"from bench.peers import write_found; write_found({name!r}, {quick}, {str(file)!r})"
        subprocess.run([sys.executable, "-W", "ignore", "-c", code], check=True, stdout=subprocess.DEVNULL)
        found: Found = pickle.loads(file.read_bytes())
        return found


def write_found(name: str, quick: bool, file: str) -> None:
    """Writes what was measured of a tool to a file."""
    Path(file).write_bytes(pickle.dumps(measured_tool(name, quick)))


def measured_imports(rounds: int) -> list[Line]:
    """How long each tool's import takes in a new process."""
    wanted = {tool.name: tool.imports for tool in TOOLS.values()}
    return measure(Table("import", import_cases(wanted), absolute=True), rounds, 1).lines


def measured_tool(name: str, quick: bool) -> Found:
    """All that one tool does; what it can't do is told by its error."""
    torch.set_num_threads(1)
    tool = TOOLS[name]
    found = Found(name)
    if tool.record is not None:
        found.facts["peak"] = _told(_peak, tool.record)
    for work, subject, cases in _works(tool):
        rounds = QUICK if quick else min(ROUNDS[subject], _affordable(cases[1]))
        found.lines[work, subject] = measure(Table(f"{work}, {subject}", cases), rounds, 1).lines[1]
        gc.collect()
    if tool.record is not None:
        found.facts["exception"] = _told(after_an_exception, tool.record)
        found.facts["compiled"] = _told(of_a_compiled_model, tool.record)
    return found


def _affordable(case: Case) -> int:
    """How many rounds fit into SECONDS, by one run; a case that raises is told when it is measured."""
    begun = time.perf_counter()
    with suppress(Exception):
        case.run()
    return max(QUICK, int(SECONDS / (time.perf_counter() - begun)))


def _told(fact: Callable[..., str], *args: Any) -> str:
    """What a check says; where it raises, what was raised."""
    try:
        return fact(*args)
    except Exception as error:
        return f"{type(error).__name__}: {' '.join(str(error).split())[:80]}"


def _peak(record: Callable[[nn.Module], Recorder]) -> str:
    return f"{growth_here(lambda model, x: _without_grad(record(model).run, x), resnet50):.0f} MB"


def _works(tool: Tool) -> Iterator[tuple[str, str, list[Case]]]:
    """(work, subject, plain case and the tool's) of all that the tool does."""
    for subject, build in MODELS.items():
        if tool.record is not None:
            model, x = build()
            yield "record", subject, _record_cases(tool.record, model, x)
    for subject in ("ResNet-50", "1000 tiny modules"):
        for which, statistics in (tool.statistics or {}).items():
            model, x = MODELS[subject]()
            run = partial(statistics, twin(model), x)
            yield f"statistics, {which}", subject, [_plain(model, x), Case(tool.name, run)]
    if tool.training is not None:
        model, x = resnet50()
        batch = x[:, :, :96, :96].repeat(4, 1, 1, 1)
        yield "training", "ResNet-50", _training_cases(tool.training, model.train(), batch, tool.name)
    if tool.summary is not None:
        model, x = resnet50()
        yield "summary", "ResNet-50", [_plain(model, x), Case(tool.name, partial(tool.summary, model, x))]


def _record_cases(record: Callable[[nn.Module], Recorder], model: nn.Module, x: torch.Tensor) -> list[Case]:
    with torch.no_grad():
        right = raw(twin(model), x, clone)
    made: list[Recorder] = []

    def run() -> Any:
        if not made:
            made.append(record(twin(model)))
        return _without_grad(made[0].run, x)

    return [_plain(model, x), Case("recorded", run, remark=lambda result: compared(made[0].read(result), right))]


def _training_cases(training: Callable[..., Any], model: nn.Module, x: torch.Tensor, name: str) -> list[Case]:
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)

    def step() -> None:
        optimizer.zero_grad()
        model(x).square().mean().backward()
        optimizer.step()

    return [Case(PLAIN, step), Case(name, training(twin(model), x))]


def _plain(model: nn.Module, x: torch.Tensor) -> Case:
    return Case(PLAIN, partial(_without_grad, model, x))


def _without_grad(run: Callable[[torch.Tensor], Any], x: torch.Tensor) -> Any:
    with torch.no_grad():
        return run(x)
