"""Row operators: what a callback on every operator costs, beside a bare dispatch mode, and compiled."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

import hookline
from bench.harness import Case, Goal, Table
from bench.models import gpt2, resnet50, tiny, twin

BARE = "bare mode, copies"


def tables() -> Iterator[Table]:
    for title, build in (("1000 tiny modules", tiny), ("GPT-2 size", gpt2), ("ResNet-50", resnet50)):
        model, x = build()
        yield Table(f"Every operator, {title}, forward", _cases(model, x, _no_grad), rounds=12, note=NOTE)
    model, x = tiny(200)
    yield Table(
        "Every operator, 200 tiny modules, forward + backward", _cases(model, x, _train), rounds=12, note=NOTE
    )
    yield _compiled()


NOTE = (
    "Each output is handed to a function that does nothing. The bare mode knows no modules; it hands over copies "
    "as hookline does, or the tensors themselves."
)


def _cases(model: Any, x: Any, run: Any) -> list[Case]:
    copies, themselves, first, ours, inputs, one = (twin(model) for _ in range(6))

    @contextmanager
    def known(model: Any, **options: Any) -> Iterator[None]:
        with hookline.register_op_hook(model, _look, **options):
            run(model, x)  # names are made in a first call
            yield

    return [
        Case("plain", partial(run, model, x)),
        Case(BARE, partial(run, copies, x), partial(Bare, copy=True)),
        Case("bare mode, tensors themselves", partial(run, themselves, x), partial(Bare, copy=False)),
        Case("register_op_hook", partial(run, ours, x), partial(known, ours), Goal(1.1, "ratio", BARE)),
        Case("the same, first call", partial(run, first, x), partial(hookline.register_op_hook, first, _look)),
        Case("register_op_hook, monitor_all", partial(run, inputs, x), partial(known, inputs, monitor_all=True)),
        Case("register_op_hook, ops='aten.*mm'", partial(run, one, x), partial(known, one, ops="aten.*mm")),
    ]


class Bare(TorchDispatchMode):
    """What somebody would write who wants each output once."""

    def __init__(self, *, copy: bool) -> None:
        super().__init__()
        self.copy = copy

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        for tensor in out if isinstance(out, (tuple, list)) else (out,):
            if isinstance(tensor, torch.Tensor):
                _look("", str(func), tensor.clone() if self.copy else tensor)
        return out


def _look(name: str, op: str, array: Any) -> None:
    return None


def _no_grad(model: Any, x: Any) -> None:
    with torch.no_grad():
        model(x)


def _train(model: Any, x: Any) -> None:
    model(x).sum().backward()


class Block(nn.Module):
    """One layer of a transformer."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.down(torch.relu(self.up(self.norm(x))))


def _compiled() -> Table:
    model = nn.Sequential(*(Block(256) for _ in range(2)))
    x = torch.randn(512, 256)
    took = {}
    compiled: dict[str, Any] = {}
    hooks: dict[str, dict[str, Any]] = {
        "compiled": {},
        "op hook, ops='aten.*mm'": {"ops": "aten.*mm"},
        "op hook, every operator": {"ops": None},
        "op hook, monitor_all": {"monitor_all": True},
    }
    for name, options in hooks.items():
        compiled[name] = torch.compile(twin(model))
        start = time.perf_counter()
        with _hooked(compiled[name], options):
            _train(compiled[name], x)
        took[name] = time.perf_counter() - start
    compile_times = ", ".join(f"{name} {seconds:.0f} s" for name, seconds in took.items())
    return Table(
        "Operators of a compiled model, two transformer layers, forward + backward",
        [
            Case(name, partial(_train, compiled[name], x), partial(_hooked, compiled[name], options))
            for name, options in hooks.items()
        ],
        rounds=12,
        note=f"First call, with compilation: {compile_times}. The first of them also starts the compiler.",
    )


@contextmanager
def _hooked(model: Any, options: dict[str, Any]) -> Iterator[None]:
    if not options:
        yield
        return
    with hookline.register_op_hook(model, _look, **options):
        yield
