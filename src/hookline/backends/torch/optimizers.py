"""Optimizers: the steps of whoever trains a model, heard through torch's own optimizer hooks."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from torch import nn
from torch.optim.optimizer import (
    Optimizer,
    register_optimizer_step_post_hook,
    register_optimizer_step_pre_hook,
)

Heard = Callable[[set[int]], None]
"""Takes the identities of the parameters that the optimizer holds."""


def hear_steps(model: nn.Module, before: Heard, after: Heard) -> Callable[[], None]:
    """Calls `before` and `after` around every step of an optimizer that holds a parameter of `model`."""

    def tell(heard: Heard, optimizer: Optimizer, args: Any, kwargs: Any) -> None:
        held = {id(p) for group in optimizer.param_groups for p in group["params"]}
        if any(id(parameter) in held for parameter in model.parameters()):
            heard(held)

    handles = [
        register_optimizer_step_pre_hook(partial(tell, before)),
        register_optimizer_step_post_hook(partial(tell, after)),
    ]

    def remove() -> None:
        for handle in handles:
            handle.remove()

    return remove
