"""Parameters: the Variables of a model by name, and the gradients of a module's own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from flax import nnx

from hookline.backends.nnx.events import settled
from hookline.backends.nnx.module_taps import module_taps_of
from hookline.backends.nnx.modules import variables_of, walk
from hookline.backends.nnx.taps import refresh
from hookline.backends.tap import Label
from hookline.backends.undoing import Undoing


def tensors_of(model: nnx.Module) -> dict[str, Any]:
    """Every Variable that holds an array of numbers, by its dotted name."""
    return {
        f"{name}.{own}" if name else own: variable
        for name, module in walk(model)
        for own, variable in variables_of(module).items()
        if not isinstance(variable, nnx.RngState)
    }


def hear_parameters(undoing: Undoing, module: nnx.Module, sink: Callable[[str, Any], None], label: Label) -> None:
    """Tells what the module's own calls contribute to the gradients of its parameters."""
    post, mine = module_taps_of(module), (sink, label)

    def remove() -> None:
        if mine in post.param_sinks:
            settled()
            post.param_sinks = [other for other in post.param_sinks if other is not mine]
        refresh(post)

    undoing.noted(remove)
    post.param_sinks.append(mine)
    refresh(post)
