"""Gradients: taps by MindSpore's HookBackward operator, an identity whose backward calls a function.

A tap stands at each tensor of a structure by itself. MindSpore's own backward hooks, with a dict or a list as
output, report the gradient of the input under the name of the output's.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from typing import Any

import mindspore as ms
from mindspore import nn, ops

from hookline.backends.mindspore import compat
from hookline.backends.mindspore.taps import ON_PARAMETERS
from hookline.backends.tap import FunctionTap, Label, Tap


def is_live(tensor: ms.Tensor) -> bool:
    """Whether a gradient may come to `tensor`."""
    return compat.in_graph(tensor)


def tap(tensor: ms.Tensor, fn: Callable[[Any], Any]) -> ms.Tensor:
    """`tensor` to go on with; in the backward `fn(grad)` is called, and its result goes on, if not None."""

    def hear(grads: tuple[ms.Tensor, ...]) -> Any:
        new = fn(grads[0])
        return None if new is None else (new,)

    return ops.HookBackward(hear)(tensor)


def joint_tap(tensors: list[Any], fn: Callable[[list[Any]], list[Any] | None]) -> list[Any]:
    """The tensors to go on with; in the backward `fn(grads)` is called once, and what it returns goes on."""

    def hear(grads: tuple[ms.Tensor, ...]) -> Any:
        new = fn(list(grads))
        return None if new is None else tuple(new)

    led = ops.HookBackward(hear)(*tensors)
    return list(led) if len(tensors) > 1 else [led]


def hear_parameters(module: nn.Cell, sink: Callable[[str, Any], None], label: Label) -> Callable[[], None]:
    """Calls `sink(name, grad)` for each of the cell's own parameters that a backward gives a gradient."""
    taps: list[Tap] = []
    with ExitStack() as placed:
        for name, parameter in compat.parameters(module).items():
            if parameter.requires_grad:
                heard = FunctionTap(partial(_heard, sink, name), label)
                placed.callback(parameter.register_hook(heard).remove)
                taps.append(heard)
        ON_PARAMETERS.setdefault(id(module), []).extend(taps)
        placed.callback(_forget, module, taps)
        return placed.pop_all().close


def _heard(sink: Callable[[str, Any], None], name: str, grad: ms.Tensor) -> None:
    sink(name, grad)


def _forget(cell: nn.Cell, taps: list[Tap]) -> None:
    left = [tap for tap in ON_PARAMETERS.pop(id(cell), []) if not any(tap is own for own in taps)]
    if left:
        ON_PARAMETERS[id(cell)] = left
