"""Parameters: those of a model by name, and their gradients."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import mindspore as ms
from mindspore import nn

from hookline.backends.mindspore import compat
from hookline.backends.mindspore.modules import every
from hookline.backends.mindspore.taps import ON_PARAMETERS
from hookline.backends.tap import FunctionTap, Label, Tap
from hookline.backends.undoing import Undoing


def own_parameters(module: nn.Cell) -> dict[str, Any]:
    """A cell's own parameters by attribute, without moving statistics."""
    found = compat.parameters(module).items()
    return {name: parameter for name, parameter in found if not compat.is_state(name, parameter)}


def tensors_of(model: nn.Cell) -> dict[str, Any]:
    """Every parameter and buffer by its dotted name, tied ones under each of their names."""
    found = {}
    for name, cell in every(model):
        for own, tensor in {**compat.parameters(cell), **compat.buffers(cell)}.items():
            found[f"{name}.{own}" if name else own] = tensor
    return found


def hear_parameters(undoing: Undoing, module: nn.Cell, sink: Callable[[str, Any], None], label: Label) -> None:
    """Calls `sink(name, grad)` for each of the cell's own parameters that a backward gives a gradient."""
    taps: list[Tap] = []
    undoing.noted(_forget, module, taps)
    for name, parameter in compat.parameters(module).items():
        if parameter.requires_grad:
            heard = FunctionTap(partial(_heard, sink, name), label)
            undoing.callback(parameter.register_hook(heard).remove)
            taps.append(heard)
    ON_PARAMETERS.setdefault(id(module), []).extend(taps)


def _heard(sink: Callable[[str, Any], None], name: str, grad: ms.Tensor) -> None:
    sink(name, grad)


def _forget(cell: nn.Cell, taps: list[Tap]) -> None:
    left = [tap for tap in ON_PARAMETERS.pop(id(cell), []) if not any(tap is own for own in taps)]
    if left:
        ON_PARAMETERS[id(cell)] = left
