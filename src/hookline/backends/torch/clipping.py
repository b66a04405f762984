"""Clipping and scaling: told when somebody clips the gradients of parameters, or steps by a GradScaler."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

import torch
import torch.nn.utils as utils
from torch import Tensor
from torch.amp import GradScaler
from torch.nn.utils import clip_grad
from torch.optim import Optimizer

from hookline.backends.patching import Patch
from hookline.backends.torch.compat import CLIPPING
from hookline.backends.undoing import Undoing

Clipped = Callable[[list[Tensor]], None]
Scaled = Callable[[GradScaler, Optimizer], None]


def hear_clipping(undoing: Undoing, told: Clipped) -> None:
    """Calls `told(parameters)` before their gradients are clipped by a function of torch; it must not raise."""
    _clipping.use(undoing, told)


def hear_scaling(undoing: Undoing, told: Scaled) -> None:
    """Calls `told(scaler, optimizer)` before a GradScaler steps; it must not raise."""
    _steps.use(undoing, told)


def _telling_clip(clip: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(clip)
    def telling(parameters: Any, *args: Any, **kwargs: Any) -> Any:
        if torch.compiler.is_compiling() or not _clipping.users:
            return clip(parameters, *args, **kwargs)
        if not isinstance(parameters, (Tensor, list, tuple)):
            parameters = list(parameters)  # an iterator can be gone through once
        own = [parameters] if isinstance(parameters, Tensor) else list(parameters)
        for told in _clipping.users:
            told(own)
        return clip(parameters, *args, **kwargs)

    return telling


def _telling_step(step: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(step)
    def telling(scaler: GradScaler, optimizer: Optimizer, *args: Any, **kwargs: Any) -> Any:
        for told in _steps.users:
            told(scaler, optimizer)
        return step(scaler, optimizer, *args, **kwargs)

    return telling


# A user may have imported clip_grad_norm_ long before: what is replaced is what that calls.
_clipping = Patch[Clipped](
    [
        (clip_grad, CLIPPING),
        (utils, "clip_grads_with_norm_"),
        (clip_grad, "clip_grad_value_"),
        (utils, "clip_grad_value_"),
    ],
    _telling_clip,
)
_steps = Patch[Scaled]([(GradScaler, "step")], _telling_step)
