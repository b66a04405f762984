"""Tools: what `make bench-peers` compares, each with its own way to do the same work.

A tool is measured in a process of its own: torchlens wraps torch's functions when it first runs and leaves them
so, nnsight patches torch when it is imported, and no other tool may be slowed down by that.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import nn

import hookline
from bench import recorders
from bench.models import leaves
from bench.recorders import Values
from bench.summary import torchinfo_summary
from bench.watch import WandbStep, watched
from hookline import bins
from hookline.rows import STATISTICS

COMPILED = "_orig_mod."
"""What torch.compile puts before the names of modules."""
Run = Callable[[torch.Tensor], Any]


@dataclass(frozen=True)
class Recorder:
    """A run that records every leaf module's output, whole cycle, and how its result is read."""

    run: Run
    read: Callable[[Any], Values] = dict


@dataclass(frozen=True)
class Tool:
    """What a tool can do; each part is made for a model. `imports` is what a user writes to have it."""

    name: str
    imports: str
    package: str
    record: Callable[[nn.Module], Recorder] | None = None
    statistics: dict[str, Callable[[nn.Module, torch.Tensor], Any]] | None = None
    training: Callable[[nn.Module, torch.Tensor], Callable[[], Any]] | None = None
    summary: Callable[[nn.Module, torch.Tensor], Any] | None = None
    note: str = ""


def _hookline(model: nn.Module) -> Recorder:
    return Recorder(partial(recorders.ours, model), recorders.read_ours)


def _torch(model: nn.Module) -> Recorder:
    return Recorder(partial(recorders.raw, model, keep=recorders.clone))


def _fastai(model: nn.Module) -> Recorder:
    return Recorder(partial(recorders.fastai, model))


def _nnsight(model: nn.Module) -> Recorder:
    made = recorders.Nnsight(model)
    return Recorder(made, made.read)


def _captum(model: nn.Module) -> Recorder:
    return Recorder(Captum(model))


class Captum:
    """captum has to be told which modules are called, which one run of the model tells beforehand."""

    def __init__(self, model: nn.Module) -> None:
        self.model = model
        self.names: list[str] = []

    def __call__(self, x: torch.Tensor) -> Values:
        if not self.names:
            self.names = list(recorders.raw(copy.deepcopy(self.model), x, recorders.reference))
        return recorders.captum(self.model, x, self.names)


def _torchlens(model: nn.Module) -> Recorder:
    import torchlens

    def read(trace: Any) -> Values:
        # Of a compiled model it traces the one that was compiled, and names modules as they are there.
        names = [name.removeprefix(COMPILED) for name in leaves(model)]
        called = [name for name in names if name in trace.modules]
        return {name: [call.out for call in trace.modules[name].calls.values()] for name in called}

    return Recorder(partial(torchlens.trace, model), read)


def _transformer_lens(model: nn.Module) -> Recorder:
    """TransformerLens records at HookPoints that a model is written with; here one is put behind each leaf."""
    from transformer_lens import HookedRootModule
    from transformer_lens.hook_points import HookPoint

    class Root(HookedRootModule):
        def __init__(self, inner: nn.Module) -> None:
            super().__init__()
            self.inner = inner
            self.setup()

        def forward(self, x: torch.Tensor) -> Any:
            return self.inner(x)

    names = list(leaves(model))
    for name in names:
        parent, _, last = name.rpartition(".")
        setattr(model.get_submodule(parent), last, WithPoint(model.get_submodule(name), HookPoint()))
    root = Root(model)

    def read(result: Any) -> Values:
        return {name: [result[1][f"inner.{name}.point"]] for name in names if f"inner.{name}.point" in result[1]}

    return Recorder(root.run_with_cache, read)


class WithPoint(nn.Module):
    """A module with a HookPoint behind it; other attributes are the module's."""

    def __init__(self, module: nn.Module, point: nn.Module) -> None:
        super().__init__()
        self.module, self.point = module, point

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self.point(self.module(*args, **kwargs))

    def __getattr__(self, name: str) -> Any:
        try:
            return super().__getattr__(name)
        except AttributeError:
            return getattr(super().__getattr__("module"), name)


def _fastai_statistics(histogram: bool) -> Callable[[nn.Module, torch.Tensor], Any]:
    def run(model: nn.Module, x: torch.Tensor) -> Any:
        from fastai.callback.hook import ActivationStats, Hooks

        reduce = ActivationStats(with_hist=histogram).hook
        with torch.no_grad(), Hooks(list(model.modules()), partial(_if_tensor, reduce)) as hooks:
            model(x)
            return hooks.stored

    return run


def _if_tensor(reduce: Callable[..., Any], module: Any, args: Any, output: Any) -> Any:
    return reduce(module, args, output) if isinstance(output, torch.Tensor) else None


def _watched_step(model: nn.Module, x: torch.Tensor) -> Callable[[], None]:
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)

    def step() -> None:
        with hookline.watch(model):
            optimizer.zero_grad()
            model(x).square().mean().backward()
            optimizer.step()

    return step


TOOLS = {
    tool.name: tool
    for tool in (
        Tool(
            "hookline",
            "import hookline",
            "hookline",
            _hookline,
            {
                "three or more": partial(watched, histogram=False),
                "with a histogram": partial(watched, histogram=True),
            },
            _watched_step,
            hookline.summary,
            f"statistics: {len(STATISTICS)} of each output; the histogram has {bins.COUNT:,} bins",
        ),
        Tool("torch hooks, clone", "import torch", "torch", _torch, note="written by hand, for scale"),
        Tool(
            "fastai",
            "from fastai.callback.hook import *",
            "fastai",
            _fastai,
            {"three or more": _fastai_statistics(False), "with a histogram": _fastai_statistics(True)},
            note="hook_outputs; statistics: ActivationStats, three of each output, 40 bins from 0 to 10",
        ),
        Tool(
            "nnsight",
            "import nnsight",
            "nnsight",
            _nnsight,
            note="tracer.cache(); wrapping the model is not timed",
        ),
        Tool("captum", "import captum.attr", "captum", _captum, note="LayerActivation"),
        Tool(
            "torchlens",
            "import torchlens",
            "torchlens",
            _torchlens,
            note="trace(); it records every operation and the graph, which is more than was asked for",
        ),
        Tool(
            "TransformerLens",
            "import transformer_lens",
            "transformer-lens",
            _transformer_lens,
            note="run_with_cache at HookPoints that were written into a copy of the model behind each leaf",
        ),
        Tool(
            "wandb",
            "import wandb",
            "wandb",
            training=lambda model, x: WandbStep(model, x),
            note="watch(log='all', log_freq=1), offline: histograms of gradients and parameters, not of outputs",
        ),
        Tool("torchinfo", "import torchinfo", "torchinfo", summary=torchinfo_summary, note="summary()"),
    )
}
