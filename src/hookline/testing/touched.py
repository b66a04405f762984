"""untouched: proves that a block left a torch model exactly as it was found."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn.parameter import is_lazy


class Touched(AssertionError):
    """Something of the model differs from what it was; the message says what."""


@contextmanager
def untouched(model: nn.Module, *, parameters: bool = True, rng: bool = True) -> Iterator[None]:
    """Raises Touched if, at the end of the block, anything of the model is not as at its start.

    Compared per submodule: class, training flag, the keys of `__dict__`, the very hook objects of
    everybody in their order, parameters and buffers (same objects, same numbers); and the state of
    the random generator. `parameters=False` and `rng=False` leave those out, where a block trains.

    >>> model = nn.Linear(2, 2)
    >>> with untouched(model):
    ...     _ = model.eval()
    Traceback (most recent call last):
    hookline.testing.touched.Touched: '' training: was True, is False
    """
    before = _state(model, parameters=parameters, rng=rng)
    try:
        yield
    finally:
        after = _state(model, parameters=parameters, rng=rng)
        for key in {**before, **after}:
            was, now = before.get(key, "absent"), after.get(key, "absent")
            if not _same(was, now):
                raise Touched(f"{key}: was {_short(was)}, is {_short(now)}")


def _state(model: nn.Module, *, parameters: bool, rng: bool) -> dict[str, Any]:
    state: dict[str, Any] = {}
    if rng:
        state = {"random state": torch.get_rng_state(), "Python's random state": random.getstate()}
        state["NumPy's random state"] = repr(np.random.get_state())
    for name, module in model.named_modules(remove_duplicate=False):
        at = repr(name)
        state[f"{at} module"] = id(module)
        state[f"{at} class"] = type(module)
        state[f"{at} training"] = module.training
        state[f"{at} keys"] = sorted(vars(module))
        for attribute, value in vars(module).items():
            if "_hooks" in attribute and isinstance(value, dict):
                state[f"{at} {attribute}"] = [(number, id(hook)) for number, hook in value.items()]
        for own, tensor in [*module._parameters.items(), *module._buffers.items()]:
            if tensor is None or not parameters:
                continue
            state[f"{at} {own} object"] = id(tensor), tensor.requires_grad
            for hooks in ("_backward_hooks", "_post_accumulate_grad_hooks"):
                state[f"{at} {own} {hooks}"] = [id(hook) for hook in (getattr(tensor, hooks) or {}).values()]
            if not is_lazy(tensor):
                state[f"{at} {own} numbers"] = tensor.detach().clone()
                state[f"{at} {own} memory"] = tensor.data_ptr() if tensor.layout is torch.strided else None
    return state


def _same(was: Any, now: Any) -> bool:
    if isinstance(was, torch.Tensor) and isinstance(now, torch.Tensor):
        return was.dtype == now.dtype and was.shape == now.shape and _bits(was).equal(_bits(now))
    return bool(was == now)


def _bits(tensor: torch.Tensor) -> torch.Tensor:
    # Compared as bytes: NaN equals itself, and 0.0 differs from -0.0.
    if tensor.layout is not torch.strided:
        tensor = tensor.to_dense()
    return tensor.contiguous().reshape(-1).view(torch.uint8) if tensor.numel() else tensor


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) < 200 else text[:200] + "..."
