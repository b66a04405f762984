"""Forwards: a module's forward replaced for a while, as a skip needs it.

No hook can keep a forward from running. The replacement sits in the instance's __dict__, where Python
looks before the class; a copy of the model gets the forward that was there before.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

from hookline.backends.tap import FunctionTap, Label


class ReplacedForward:
    """Stands in for a module's forward; `fn` gets the one before and the arguments."""

    def __init__(self, module: Any, attribute: str, fn: Callable[..., Any], label: Label) -> None:
        self._module, self._attribute = module, attribute
        self._before = vars(module).get(attribute)
        self._fn = fn
        self.tap = FunctionTap(fn, label)
        self._original = getattr(module, attribute)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._fn(self._original, *args, **kwargs)

    def remove(self) -> None:
        state = vars(self._module)
        if state.get(self._attribute) is not self:
            return  # somebody replaced it again; their forward still leads here, and on to ours
        if self._before is None:
            del state[self._attribute]
        else:
            state[self._attribute] = self._before

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        if self._before is not None:
            return copy.deepcopy(self._before, memo)
        own = getattr(type(self._module), self._attribute)
        return own.__get__(memo.get(id(self._module), self._module))

    def __reduce__(self) -> Any:
        if self._before is not None:
            return copy.copy, (self._before,)
        return getattr, (self._module, self._attribute)


def replaced(attribute: str, module: Any, fn: Callable[..., Any], label: Label) -> Callable[[], None]:
    """Has `fn(original_forward, *args, **kwargs)` run in place of the forward; returns the undoing."""
    forward = ReplacedForward(module, attribute, fn, label)
    vars(module)[attribute] = forward
    return forward.remove
