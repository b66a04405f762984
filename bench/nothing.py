"""Row nothing: a model that hookline has left must be as fast as one that it never saw."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import nn

import hookline
from bench.harness import Case, Goal, Table
from bench.models import tiny, twin

NOISE = 0.02  # two copies that never saw hookline differ by about as much; the table shows it


def tables() -> Iterator[Table]:
    built, x = tiny()
    # Three copies made alike, and the same passes on each: where memory was handed out shows in timings too.
    model, other, left = twin(built), twin(built), twin(built)
    for untouched in (model, other):
        _passes(untouched, x)
    _attach_and_detach(left, x)
    yield Table(
        "Nothing attached: 1000 tiny modules after everything was removed",
        [
            Case("never hooked", lambda: _forward(model, x)),
            Case("never hooked, second copy", lambda: _forward(other, x)),
            Case(
                "after hookline has left",
                lambda: _forward(left, x),
                goal=Goal(1 + NOISE, text=f"1.00x (+-{NOISE})"),
                remark=lambda _: f"{hooks_on(left)} hooks left on it",
            ),
        ],
        inner=10,
        rounds=40,
        unit="us/module",
        scale=1e6,
        per=1000,
    )


def _forward(model: nn.Module, x: torch.Tensor) -> None:
    with torch.no_grad():
        model(x)


def _passes(model: nn.Module, x: torch.Tensor) -> None:
    for _ in range(2):
        model(x).sum().backward()
        model(x)
    model.zero_grad(set_to_none=True)


def _attach_and_detach(model: nn.Module, x: torch.Tensor) -> None:
    with hookline.record(model, inputs=True, grads=True):
        model(x).sum().backward()
    with hookline.register_forward_hook(model, lambda module, args, output: None, "**"):
        model(x)
    with hookline.register_backward_hook(model, lambda module, grad_input, grad_output: None, "**"):
        model(x).sum().backward()
    with hookline.edit(model, {"0": lambda output: output * 2}):
        model(x)
    model.zero_grad(set_to_none=True)


HOOKS = ("_forward_pre_hooks", "_forward_hooks", "_backward_pre_hooks", "_backward_hooks")


def hooks_on(model: nn.Module) -> int:
    # By name, not by vars(module): that alone would slow down every later call of the module.
    return sum(len(getattr(module, name)) for module in model.modules() for name in HOOKS)
