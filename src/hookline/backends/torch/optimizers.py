"""Optimizers: the steps of whoever trains a model, heard through torch's own optimizer hooks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import nn
from torch.optim.optimizer import (
    Optimizer,
    register_optimizer_step_post_hook,
    register_optimizer_step_pre_hook,
)

Heard = Callable[[int], None]
"""Takes the identity of the optimizer that steps."""


def hear_steps(model: nn.Module, before: Heard, after: Heard) -> Callable[[], None]:
    """Calls `before` and `after` around every step of an optimizer that holds a parameter of `model`."""
    mine = {id(parameter) for parameter in model.parameters()}
    known: dict[int, bool] = {}

    def trains(optimizer: Optimizer) -> bool:
        if id(optimizer) not in known:
            held = (id(p) for group in optimizer.param_groups for p in group["params"])
            known[id(optimizer)] = not mine.isdisjoint(held)
        return known[id(optimizer)]

    def pre(optimizer: Optimizer, args: Any, kwargs: Any) -> None:
        if trains(optimizer):
            before(id(optimizer))

    def post(optimizer: Optimizer, args: Any, kwargs: Any) -> None:
        if trains(optimizer):
            after(id(optimizer))

    handles = [register_optimizer_step_pre_hook(pre), register_optimizer_step_post_hook(post)]

    def remove() -> None:
        for handle in handles:
            handle.remove()

    return remove
