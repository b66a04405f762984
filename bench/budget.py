"""Row budget: a whole training with watch(budget="2%") beside the same one without, eager and compiled.

In the time are attaching, recording, writing the run, and leaving the block; not in it is compiling, which both
did before. Two clocks, a table for each: CPU time, with all threads of ours, and wall time.
"""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
from torch import nn

import hookline
from bench.compiled import BATCH, TOKENS, WIDTH, Transformer
from bench.harness import Case, Goal, Table

SHARE = "2%"
GOAL = Goal(1.02)
SECONDS = 4.0
"""About so long is a training."""
CLOCKS = {"CPU time": time.process_time, "wall time": time.perf_counter}


def tables() -> Iterator[Table]:
    for title, build in (("tiny MLP", _tiny), ("CNN", _cnn), ("transformer", _transformer)):
        for compiled in (False, True):
            model, x = build()
            training = Training(torch.compile(model) if compiled else model, x)
            steps = training.fitting()
            how = "compiled" if compiled else "eager"
            for clock in CLOCKS:
                yield Table(
                    f"A training with budget {SHARE}, {title}, {how}, {clock}",
                    _cases(training, steps, CLOCKS[clock]),
                    rounds=4,
                    note=f"{steps} steps, {len(list(model.modules()))} modules, in a run on the disk.",
                )


class Training:
    """A model that is trained for some steps, always from the same weights."""

    def __init__(self, model: Any, x: torch.Tensor) -> None:
        self.model, self.x = model, x
        self.start = {name: value.clone() for name, value in model.state_dict().items()}
        self.told = ""

    def run(self, steps: int, around: Callable[[Any], Any]) -> None:
        self.model.load_state_dict(self.start)
        optimizer = torch.optim.SGD(self.model.parameters(), lr=1e-4)
        with around(self.model) as watch:
            for _ in range(steps):
                optimizer.zero_grad()
                self.model(self.x).square().mean().backward()
                optimizer.step()
        if getattr(watch, "budget", None) is not None:
            self.told = watch.budget.text

    def fitting(self) -> int:
        """So many steps as take SECONDS; everything is compiled then, and warm."""
        self.run(5, _nothing)
        self.run(5, partial(hookline.watch, every=3))
        self.run(40, partial(hookline.watch, budget=SHARE))
        start = time.perf_counter()
        self.run(20, _nothing)
        return max(int(SECONDS / (time.perf_counter() - start) * 20), 100)


def _cases(training: Training, steps: int, clock: Callable[[], float]) -> list[Case]:
    plain = partial(_timed, clock, partial(training.run, steps, _nothing))
    return [
        Case("plain", plain, own_clock=True),
        Case("plain again", plain, own_clock=True),  # how far two of the same are apart
        Case(
            f"hookline.watch(budget={SHARE!r}, to=...)",
            partial(_timed, clock, partial(_kept, training, steps)),
            goal=GOAL,
            remark=lambda seconds: training.told,
            own_clock=True,
        ),
    ]


def _timed(clock: Callable[[], float], run: Callable[[], None]) -> float:
    start = clock()
    run()
    return clock() - start


def _kept(training: Training, steps: int) -> None:
    folder = Path(tempfile.mkdtemp())
    try:
        training.run(steps, partial(hookline.watch, budget=SHARE, to=folder / "run"))
    finally:
        shutil.rmtree(folder)


def _nothing(model: Any) -> nullcontext[None]:
    return nullcontext()


def _tiny() -> tuple[nn.Module, torch.Tensor]:
    torch.manual_seed(0)
    pairs = [(nn.Linear(32, 32), nn.ReLU()) for _ in range(3)]
    return nn.Sequential(*(module for pair in pairs for module in pair), nn.Linear(32, 10)), torch.randn(32, 32)


def _cnn() -> tuple[nn.Module, torch.Tensor]:
    torch.manual_seed(0)
    widths = [3, 32, 64, 64, 128]
    blocks = [
        nn.Sequential(nn.Conv2d(one, other, 3, 2, 1), nn.BatchNorm2d(other), nn.ReLU(inplace=True))
        for one, other in pairwise(widths)
    ]
    return nn.Sequential(*blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(128, 10)), torch.randn(
        16, 3, 64, 64
    )


def _transformer() -> tuple[nn.Module, torch.Tensor]:
    torch.manual_seed(0)
    return Transformer(), torch.randn(BATCH, TOKENS, WIDTH)
