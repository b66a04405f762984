"""Row gradients: the gradients of every leaf module, over a forward and a backward."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from functools import partial
from typing import Any

import torch
from torch import nn

import hookline
from bench.harness import Case, Goal, Table
from bench.models import chain, is_leaf, leaves, resnet50, twin

FULL = "torch register_full_backward_hook"
TENSOR = "torch hook + Tensor.register_hook (outputs only)"
NODE = "torch hook + grad_fn.register_hook, cloned, by hand"
RECORD = "hookline.record(grads=True)"
HOOK = "hookline.register_backward_hook"


def tables() -> Iterator[Table]:
    model, x = chain()
    count = len(leaves(model))
    yield Table(
        f"Gradients of {count} modules in a row, forward + backward",
        _cases(model, x, Goal(1.15, "extra", NODE), Goal(1.0, "extra", NODE)),
        unit="us/module",
        scale=1e6,
        per=count,
        rounds=25,
        note="Hooks are placed before and removed after the clock runs, except where it says 'whole cycle'.",
    )
    model, x = resnet50()
    yield Table(
        "Gradients of every leaf module of ResNet-50 (in-place ReLU), forward + backward",
        _cases(model, x.requires_grad_(), None, None),
        unit="us/module",
        scale=1e6,
        per=len(leaves(model)),
        rounds=9,
    )


def _cases(model: nn.Module, x: torch.Tensor, recording: Goal | None, hook: Goal | None) -> list[Case]:
    ways: list[tuple[str, Callable[..., AbstractContextManager[Any]], Goal | None]] = [
        (FULL, _full_backward, None),
        (TENSOR, _tensor_hooks, None),
        (NODE, _node_hooks, None),
        (RECORD, _recorded, recording),
        (HOOK, _backward_hooks, hook),
    ]
    cases = [Case("no hooks", partial(_step, model, x))]
    for name, way, bound in ways:
        own = twin(model)  # the weights are shared, and so are their .grad
        held: dict[str, Any] = {}
        cases.append(Case(name, partial(_step, own, x), partial(way, own, held), bound, partial(_kept, held)))
    for name, way, _ in ways[1:4]:
        cases.append(Case(f"{name}, whole cycle", partial(_cycle, way, twin(model), x)))
    return cases


def _step(model: nn.Module, x: torch.Tensor) -> None:
    model(x).sum().backward()


def _cycle(way: Callable[..., AbstractContextManager[Any]], model: nn.Module, x: torch.Tensor) -> None:
    with way(model, {}):
        _step(model, x)


@contextmanager
def _full_backward(model: nn.Module, held: dict[str, Any]) -> Iterator[None]:
    def keep(name: str, module: Any, grad_input: Any, grad_output: Any) -> None:
        held[name] = grad_input, grad_output

    with ExitStack() as handles:
        for name, module in leaves(model).items():
            handles.enter_context(module.register_full_backward_hook(partial(keep, name)))
        yield


@contextmanager
def _tensor_hooks(model: nn.Module, held: dict[str, Any]) -> Iterator[None]:
    def after(name: str, module: Any, args: Any, output: Any) -> None:
        output.register_hook(partial(keep, name))

    def keep(name: str, grad: torch.Tensor) -> None:
        held[name] = grad

    with ExitStack() as handles:
        for name, module in leaves(model).items():
            handles.enter_context(module.register_forward_hook(partial(after, name)))
        yield


@contextmanager
def _node_hooks(model: nn.Module, held: dict[str, Any]) -> Iterator[None]:
    """What a recording keeps, by hand and for modules of a single operation only."""

    def after(name: str, module: Any, args: Any, output: torch.Tensor) -> None:
        held[name] = [output.detach().clone()]
        output.grad_fn.register_hook(partial(keep, name))  # type: ignore[union-attr]

    def keep(name: str, grads_in: Any, grads_out: Any) -> None:
        # All that the operation hands back is copied: gradients of parameters are among it.
        held[name] += [grad if grad is None else grad.clone() for grad in (*grads_in, *grads_out)]

    with ExitStack() as handles:
        for name, module in leaves(model).items():
            handles.enter_context(module.register_forward_hook(partial(after, name)))
        yield


@contextmanager
def _recorded(model: nn.Module, held: dict[str, Any]) -> Iterator[None]:
    with hookline.record(model, is_leaf, grads=True) as recording:
        yield
        held.update((name, recording[name]) for name in recording.names)


@contextmanager
def _backward_hooks(model: nn.Module, held: dict[str, Any]) -> Iterator[None]:
    names = {module: name for name, module in leaves(model).items()}

    def keep(module: Any, grad_input: Any, grad_output: Any) -> None:
        held[names[module]] = grad_input, grad_output

    with hookline.register_backward_hook(model, keep, is_leaf):
        yield


def _kept(held: dict[str, Any], _: Any) -> str:
    return f"gradients of {len(held)} modules"
