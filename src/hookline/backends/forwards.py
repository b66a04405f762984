"""Forwards: a module's forward replaced for a while, as a skip needs it.

No hook can keep a forward from running. The replacement sits in the instance's __dict__, where Python
looks before the class; a copy of the model gets the forward that was there before.
"""

from __future__ import annotations

import copy
import itertools
from collections.abc import Callable
from typing import Any

from hookline.backends.tap import FunctionTap, Label, NotAFunction

_numbers = itertools.count(1)


class ReplacedForward:
    """Stands in for a module's forward; `fn` gets the one before and the arguments."""

    def __init__(self, module: Any, attribute: str, fn: Callable[..., Any], label: Label) -> None:
        self._module, self._attribute = module, attribute
        self.number = next(_numbers)
        self.fn = fn
        self.tap = FunctionTap(fn, label)
        self.original = self.__wrapped__ = getattr(module, attribute)
        self.before = own_forward(module, attribute)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.fn(self.original, *args, **kwargs)

    @property
    def __code__(self) -> Any:
        raise NotAFunction(self.tap.label)

    __globals__ = __code__

    def place(self) -> Callable[[], None]:
        """Puts it in place; returns the undoing."""
        object.__setattr__(self._module, self._attribute, self)
        return self.remove

    def remove(self) -> None:
        """Takes it out, also from between others that were placed before and after it."""
        outer, found = None, own_forward(self._module, self._attribute)
        while isinstance(found, ReplacedForward) and found is not self:
            outer, found = found, found.before
        if found is not self:
            return  # somebody else replaced it as well; their forward still leads here, and on to ours
        if outer is not None:
            outer.before, outer.original = self.before, self.original
        elif self.before is None:
            object.__delattr__(self._module, self._attribute)
        else:
            object.__setattr__(self._module, self._attribute, self.before)

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        if self.before is not None:
            return copy.deepcopy(self.before, memo)
        own = getattr(type(self._module), self._attribute)
        return own.__get__(memo.get(id(self._module), self._module))

    def __reduce__(self) -> Any:
        if self.before is not None:
            return copy.copy, (self.before,)
        return getattr, (self._module, self._attribute)


def own_forward(module: Any, attribute: str) -> Any:
    """The forward in the instance's own __dict__; None where it has that of its class."""
    found = getattr(module, attribute)
    kind: Any = type(module)
    if getattr(found, "__self__", None) is module and getattr(found, "__func__", None) is getattr(kind, attribute):
        return None  # vars(module) would make Python 3.11 build a real __dict__, and slow down the module
    return vars(module).get(attribute)


def replaced(attribute: str, module: Any, fn: Callable[..., Any], label: Label) -> Callable[[], None]:
    """Has `fn(original_forward, *args, **kwargs)` run in place of the forward; returns the undoing."""
    return ReplacedForward(module, attribute, fn, label).place()
