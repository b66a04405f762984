"""Optimizers: the steps of whoever trains a model, heard through torch's own optimizer hooks."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import torch.optim.optimizer as optimizer_module
from torch import Tensor, nn
from torch.optim.optimizer import (
    Optimizer,
    register_optimizer_step_post_hook,
    register_optimizer_step_pre_hook,
)

from hookline.backends.gate import Gate
from hookline.backends.torch.compat import AFTER_STEP, BEFORE_STEP, note_hook
from hookline.backends.torch.parameters import all_parameters
from hookline.backends.undoing import Undoing

MOMENTS = {
    "moment": ("exp_avg", "momentum_buffer"),
    "moment_sq": ("exp_avg_sq", "square_avg", "sum", "exp_inf"),
}
"""What optimizers call the mean of the gradients, and that of their squares."""
Heard = Callable[[set[int]], None]
"""Takes the identities of the parameters that the optimizer holds."""


def hear_steps(undoing: Undoing, model: nn.Module, before: Heard, after: Heard, gate: Gate | None = None) -> None:
    """Calls `before` and `after` around every step of an optimizer that holds a parameter of `model`."""

    def told_after(optimizer: Optimizer, args: Any, kwargs: Any) -> None:
        if gate is not None and gate.is_closed_for(optimizer):
            gate.count()
        elif (held := held_by(optimizer, model)) is not None:
            if gate is not None:
                gate.came(optimizer, partial(_holds_all, held, model))
            after(held)

    hear_gradients(undoing, model, lambda optimizer, held: before(held), gate=gate)
    note_hook(undoing, optimizer_module, AFTER_STEP, told_after)
    register_optimizer_step_post_hook(told_after)


def hear_moments(
    undoing: Undoing,
    model: nn.Module,
    told: Callable[[Mapping[int, Mapping[str, Tensor]]], None],
    wanted: Callable[[], bool],
) -> None:
    """Calls `told` with what an optimizer keeps for parameters, after each of its steps, while `wanted()`."""

    def after(optimizer: Optimizer, args: Any, kwargs: Any) -> None:
        if wanted() and held_by(optimizer, model) is not None:
            told({id(parameter): moments_in(state) for parameter, state in optimizer.state.items()})

    note_hook(undoing, optimizer_module, AFTER_STEP, after)
    register_optimizer_step_post_hook(after)


def moments_in(state: Any) -> dict[str, Tensor]:
    """The first and the second moment among what an optimizer keeps for a parameter."""
    found: dict[str, Tensor] = {}
    for kind, names in MOMENTS.items():
        kept = (state.get(name) for name in names) if isinstance(state, Mapping) else ()
        value = next((one for one in kept if isinstance(one, Tensor) and one.is_floating_point()), None)
        if value is not None:
            found[kind] = value
    return found


def held_by(optimizer: Optimizer, model: nn.Module) -> set[int] | None:
    """The identities of the parameters that an optimizer holds; None where none of them is the model's."""
    held = {id(p) for group in optimizer.param_groups for p in group["params"]}
    return held if any(id(parameter) in held for parameter in all_parameters(model)) else None


def _holds_all(held: set[int], model: nn.Module) -> bool:
    return all(id(parameter) in held for parameter in all_parameters(model) if parameter.requires_grad)


def _always() -> bool:
    return True


def hear_gradients(
    undoing: Undoing,
    model: nn.Module,
    before: Callable[[Optimizer, set[int]], None],
    wanted: Callable[[], bool] = _always,
    gate: Gate | None = None,
) -> None:
    """Calls `before` with each optimizer that is about to step, when its gradients are there, while `wanted()`."""

    def pre(optimizer: Optimizer, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if gate is not None and gate.is_closed_for(optimizer):
            return None
        if not wanted() or (held := held_by(optimizer, model)) is None:
            return None
        closure = kwargs.get("closure", args[1] if len(args) > 1 else None)
        if closure is None:
            before(optimizer, held)
            return None
        # The gradients are made in the closure: they are there when it has run for the first time.
        told = _Told(closure, partial(before, optimizer, held))
        if "closure" in kwargs:
            return args, {**kwargs, "closure": told}
        return (args[0], told, *args[2:]), kwargs

    note_hook(undoing, optimizer_module, BEFORE_STEP, pre)
    register_optimizer_step_pre_hook(pre)


class _Told:
    """A closure of an optimizer that tells when it has run for the first time."""

    def __init__(self, closure: Callable[[], Any], tell: Callable[[], None]) -> None:
        self._closure = closure
        self._tell: Callable[[], None] | None = tell

    def __call__(self) -> Any:
        loss = self._closure()
        if self._tell is not None:
            tell, self._tell = self._tell, None
            tell()
        return loss
