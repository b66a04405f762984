"""Forwards: a module's forward replaced for a while, as a skip needs it.

No hook can keep a forward from running. The replacement sits in the instance's __dict__, where
torch looks first; a copy of the model gets the forward that was there before.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

from torch import nn

from hookline.backends.protocol import FunctionTap, Label


class ReplacedForward:
    """Stands in for a module's forward; `fn` gets the one before and the arguments."""

    def __init__(self, module: nn.Module, fn: Callable[..., Any], label: Label) -> None:
        self._module = module
        self._before = vars(module).get("forward")
        self._fn = fn
        self.tap = FunctionTap(fn, label)
        self._original = module.forward

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._fn(self._original, *args, **kwargs)

    def remove(self) -> None:
        state = vars(self._module)
        if state.get("forward") is not self:
            return  # somebody replaced it again; their forward still leads here, and on to ours
        if self._before is None:
            del state["forward"]
        else:
            state["forward"] = self._before

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        if self._before is not None:
            return copy.deepcopy(self._before, memo)
        return type(self._module).forward.__get__(memo.get(id(self._module), self._module))

    def __reduce__(self) -> Any:
        if self._before is not None:
            return copy.copy, (self._before,)
        return getattr, (self._module, "forward")


def replace_forward(module: nn.Module, fn: Callable[..., Any], label: Label) -> Callable[[], None]:
    """Has `fn(original_forward, *args, **kwargs)` run in place of the forward; returns the undoing."""
    replaced = ReplacedForward(module, fn, label)
    vars(module)["forward"] = replaced
    return replaced.remove
