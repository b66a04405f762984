"""Row watch: statistics of every layer while a model runs and while it trains."""

from __future__ import annotations

import gc
import multiprocessing
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager, nullcontext
from functools import partial
from typing import Any

import torch
from torch import nn

import hookline
from bench.harness import Case, Goal, Table
from bench.models import gpt2, resnet50, tiny, twin
from bench.summary import in_own_process

BEFORE, STEPS = 11, 3
"""Steps of a training before and while it is timed."""
COLLECTED = 60
"""Steps over which collections are counted: a full one is seldom."""


def tables() -> Iterator[Table]:
    for title, build, goals in (
        ("ResNet-50", resnet50, (1.11, 1.18)),
        ("GPT-2 size", gpt2, (1.05, 1.08)),
        ("1000 tiny modules", tiny, (3.0, 3.5)),
    ):
        model, x = build()
        yield Table(f"Statistics of all outputs, {title}, forward", _forward_cases(model, x, *goals), rounds=12)
    model, x = resnet50()
    peaks = {
        "plain": in_own_process(_no_grad, resnet50),
        "hookline.watch": in_own_process(partial(watched, histogram=True), resnet50),
        "fastai's body": in_own_process(partial(_hooked, reduce=_three_and_hist), resnet50),
        "torch calls": in_own_process(partial(_hooked, reduce=_eleven), resnet50),
    }
    yield Table(
        "Attaching and detaching a watch, ResNet-50, relative to a forward",
        [
            Case("a forward", partial(_no_grad, model, x)),
            Case("hookline.watch: attach and detach", partial(_attached, twin(model))),
        ],
        rounds=12,
        note="Peak memory of one forward: "
        + ", ".join(f"{name} {peak:.0f} MB" for name, peak in peaks.items())
        + ".",
    )
    batch = x[:, :, :96, :96].repeat(4, 1, 1, 1)
    yield Table(
        "Watching activations, gradients and parameters, ResNet-50, a step of a training under way",
        _training_cases(model, batch),
        rounds=10,
        per=STEPS,
        note=f"Batch 4 of 96 x 96. Every step is recorded. {BEFORE} steps are made before the clock runs, {STEPS} "
        "while it does: operators and the graph are looked at in the first and in the tenth step. "
        "Python's garbage collector, which is off while the clock runs, takes "
        f"{_collecting(hookline.watch):.1f} ms a step with a watch, {_collecting(nullcontext):.1f} without.",
    )
    yield Table(
        "The same, a whole watch of one step",
        _first_step_cases(model, batch),
        rounds=10,
        note="Attach and detach are in the time, and so is the look at operators and graph of a first step.",
    )


def _forward_cases(model: Any, x: Any, plain_goal: float, hist_goal: float) -> list[Case]:
    ours, with_hist, open_one, open_with_hist, body, calls = (twin(model) for _ in range(6))
    attached = "attached beforehand"
    return [
        Case("plain", partial(_no_grad, model, x)),
        Case(f"hookline.watch, {attached}", *_open(open_one, x, histogram=False), Goal(plain_goal)),
        Case(f"hookline.watch, histogram, {attached}", *_open(open_with_hist, x, histogram=True), Goal(hist_goal)),
        Case("hookline.watch", partial(watched, ours, x, histogram=False)),
        Case("hookline.watch, histogram", partial(watched, with_hist, x, histogram=True)),
        Case("fastai's body: mean, std, near zero", partial(_hooked, body, x, _three)),
        Case("fastai's body with its histogram", partial(_hooked, twin(body), x, _three_and_hist)),
        Case("torch calls, one per statistic", partial(_hooked, calls, x, _eleven)),
    ]


def _no_grad(model: Any, x: Any) -> Any:
    with torch.no_grad():
        return model(x)


def watched(model: Any, x: Any, *, histogram: bool) -> Any:
    with torch.no_grad(), hookline.watch(model, grads=False, params=False, histogram=histogram) as w:
        model(x)
    return w


def _open(model: Any, x: Any, *, histogram: bool) -> tuple[Callable[[], Any], Callable[[], Any]]:
    """A forward, and the watch that is open around it and has seen one before: operators are looked at in that."""
    around = partial(hookline.watch, model, grads=False, params=False, histogram=histogram)
    forward = partial(_no_grad, model, x)
    return forward, partial(_seen_once, around, forward)


@contextmanager
def _seen_once(around: Callable[[], Any], forward: Callable[[], Any]) -> Iterator[None]:
    with around():
        forward()
        yield


def _attached(model: Any) -> None:
    with hookline.watch(model):
        pass


def _hooked(model: Any, x: Any, reduce: Callable[[torch.Tensor], Any]) -> list[Any]:
    kept: list[Any] = []

    def hook(module: Any, args: Any, output: Any) -> None:
        if isinstance(output, torch.Tensor):
            kept.append(reduce(output.detach().float()))

    handles = [module.register_forward_hook(hook) for module in model.modules()]
    with torch.no_grad():
        model(x)
    for handle in handles:
        handle.remove()
    return kept


def _three(t: torch.Tensor) -> Any:
    return t.mean().item(), t.std().item(), (t <= 0.05).long().sum().item() / t.numel()


def _three_and_hist(t: torch.Tensor) -> Any:
    return _three(t), t.histc(40, 0, 10)


def _eleven(t: torch.Tensor) -> Any:
    finite = torch.isfinite(t)
    return (
        t.mean(), t.std(), t.min(), t.max(), t.abs().max(), t.norm(), (t == 0).sum(),
        (t.abs() <= 0.05).sum(), torch.isnan(t).sum(), torch.isinf(t).sum(), finite.sum(),
    )  # fmt: skip


def _training_cases(model: nn.Module, x: torch.Tensor) -> list[Case]:
    def case(name: str, watch: Callable[[nn.Module], Any] | None, goal: Goal | None = None) -> Case:
        own = twin(model).train()
        step = partial(_step, own, torch.optim.SGD(own.parameters(), lr=1e-3), x, None)
        around = nullcontext if watch is None else partial(_under_way, own, watch, step)
        return Case(name, partial(_several, step), around, goal)

    return [
        case("plain", None),
        case("hookline.watch, histogram", hookline.watch, Goal(1.25)),
        case("hookline.watch", partial(hookline.watch, histogram=False), Goal(1.20)),
        Case(
            "wandb.watch(log='all'), offline, in its own process",
            partial(_wandb_steps, STEPS),
            needs="wandb",
            own_clock=True,
        ),
    ]


@contextmanager
def _under_way(model: nn.Module, watch: Callable[[nn.Module], Any], step: Callable[[], None]) -> Iterator[None]:
    """A watch that has seen its first steps."""
    with watch(model):
        for _ in range(BEFORE):
            step()
        yield


def _several(step: Callable[[], None]) -> None:
    for _ in range(STEPS):
        step()


def _collecting(watch: Callable[[nn.Module], Any]) -> float:
    """Milliseconds that collections take in a step. Pictures are small: how large they are makes no difference."""
    model, x = resnet50()
    batch = x[:, :, :32, :32].repeat(2, 1, 1, 1)
    step = partial(_step, model.train(), torch.optim.SGD(model.parameters(), lr=1e-3), batch, None)
    starts: list[float] = []
    spent: list[float] = []

    def note(phase: str, info: Any) -> None:
        if phase == "start":
            starts.append(time.process_time())
        else:
            spent.append(time.process_time() - starts[-1])

    with watch(model):
        for _ in range(BEFORE):
            step()
        gc.collect()
        gc.callbacks.append(note)
        try:
            for _ in range(COLLECTED):
                step()
        finally:
            gc.callbacks.remove(note)
    return sum(spent) * 1e3 / COLLECTED


def _first_step_cases(model: nn.Module, x: torch.Tensor) -> list[Case]:
    def case(name: str, around: Callable[[nn.Module], Any] | None) -> Case:
        own = twin(model).train()
        optimizer = torch.optim.SGD(own.parameters(), lr=1e-3)
        return Case(name, partial(_step, own, optimizer, x, around))

    return [
        case("plain", None),
        case("hookline.watch, histogram", hookline.watch),
        case("hookline.watch", partial(hookline.watch, histogram=False)),
        case("hookline.watch, 1 step in 10", partial(hookline.watch, every=lambda step: step == 9)),
    ]


class WandbStep:
    """A step with wandb.watch; the run is made before the first one and not timed."""

    def __init__(self, model: nn.Module, x: torch.Tensor) -> None:
        self.model, self.x = model, x
        self.optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
        self.run: Any = None

    def __call__(self) -> None:
        if self.run is None:
            import wandb

            folder = tempfile.mkdtemp()
            self.run = wandb.init(mode="offline", dir=folder, settings=wandb.Settings(silent=True))
            self.run.watch(self.model, log="all", log_freq=1)
        self.optimizer.zero_grad()
        loss = self.model(self.x).square().mean()
        loss.backward()
        self.optimizer.step()
        self.run.log({"loss": loss.item()})


def _wandb_steps(count: int) -> float:
    """Seconds of some steps with wandb.watch, in a process of its own: whatever runs after it there is slower."""
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as process:
        return process.submit(_wandb_steps_here, count).result()


def _wandb_steps_here(count: int) -> float:
    torch.set_num_threads(1)
    model, x = resnet50()
    step = WandbStep(model.train(), x[:, :, :96, :96].repeat(4, 1, 1, 1))
    for _ in range(BEFORE):
        step()
    start = time.process_time()
    for _ in range(count):
        step()
    return time.process_time() - start


def _step(model: nn.Module, optimizer: Any, x: torch.Tensor, around: Callable[[nn.Module], Any] | None) -> None:
    def work() -> None:
        optimizer.zero_grad()
        model(x).square().mean().backward()
        optimizer.step()

    if around is None:
        work()
    else:
        with around(model):
            work()
