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
        self._fn = fn
        self.tap = FunctionTap(fn, label)
        self._original = self.__wrapped__ = module.forward
        self.before = _own_forward(module)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._fn(self._original, *args, **kwargs)

    def place(self) -> Callable[[], None]:
        """Puts it in place; returns the undoing."""
        object.__setattr__(self._module, "forward", self)
        return self.remove

    def remove(self) -> None:
        """Takes it out, also from between others that were placed before and after it."""
        outer, found = None, _own_forward(self._module)
        while isinstance(found, ReplacedForward) and found is not self:
            outer, found = found, found.before
        if found is not self:
            return  # somebody else replaced it as well; their forward still leads here, and on to ours
        if outer is not None:
            outer.before, outer._original = self.before, self._original
        elif self.before is None:
            object.__delattr__(self._module, "forward")
        else:
            object.__setattr__(self._module, "forward", self.before)

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        if self.before is not None:
            return copy.deepcopy(self.before, memo)
        return type(self._module).forward.__get__(memo.get(id(self._module), self._module))

    def __reduce__(self) -> Any:
        if self.before is not None:
            return copy.copy, (self.before,)
        return getattr, (self._module, "forward")


def _own_forward(module: nn.Module) -> Any:
    """The forward in the instance's own __dict__; None where it has that of its class."""
    found = module.forward
    kind: Any = type(module)
    if getattr(found, "__self__", None) is module and getattr(found, "__func__", None) is kind.forward:
        return None  # vars(module) would make Python 3.11 build a real __dict__, and slow down the module
    return vars(module).get("forward")


def replace_forward(module: nn.Module, fn: Callable[..., Any], label: Label) -> Callable[[], None]:
    """Has `fn(original_forward, *args, **kwargs)` run in place of the forward; returns the undoing."""
    return ReplacedForward(module, fn, label).place()
