"""Optimizers: the steps of whoever trains a model, heard through torch's own optimizer hooks."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch.optim.optimizer as optimizer_module
from torch import nn
from torch.optim.optimizer import (
    Optimizer,
    register_optimizer_step_post_hook,
    register_optimizer_step_pre_hook,
)

from hookline.backends.torch.compat import AFTER_STEP, BEFORE_STEP, note_hook
from hookline.backends.undoing import Undoing

Heard = Callable[[set[int]], None]
"""Takes the identities of the parameters that the optimizer holds."""


def hear_steps(undoing: Undoing, model: nn.Module, before: Heard, after: Heard) -> None:
    """Calls `before` and `after` around every step of an optimizer that holds a parameter of `model`."""

    def held_by(optimizer: Optimizer) -> set[int] | None:
        held = {id(p) for group in optimizer.param_groups for p in group["params"]}
        return held if any(id(parameter) in held for parameter in model.parameters()) else None

    def pre(optimizer: Optimizer, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if (held := held_by(optimizer)) is None:
            return None
        closure = kwargs.get("closure", args[1] if len(args) > 1 else None)
        if closure is None:
            before(held)
            return None
        # The gradients are made in the closure: they are there when it has run for the first time.
        told = _Told(closure, partial(before, held))
        if "closure" in kwargs:
            return args, {**kwargs, "closure": told}
        return (args[0], told, *args[2:]), kwargs

    def post(optimizer: Optimizer, args: Any, kwargs: Any) -> None:
        if (held := held_by(optimizer)) is not None:
            after(held)

    note_hook(undoing, optimizer_module, BEFORE_STEP, pre)
    note_hook(undoing, optimizer_module, AFTER_STEP, post)
    register_optimizer_step_pre_hook(pre)
    register_optimizer_step_post_hook(post)


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
