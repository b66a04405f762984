"""Replaced forward: a module's forward replaced for a while, as a skip needs it.

No hook can keep a forward from running. The replacement sits in the instance's __dict__, where Python
looks before the class; a copy of the model gets the forward that was there before. Several may be there, each
with the one before it, and go in any order and from any thread.
"""

from __future__ import annotations

import copy
import itertools
import weakref
from collections.abc import Callable
from functools import partial
from types import MethodType
from typing import Any

from hookline.backends.changing import changing
from hookline.backends.nouns import Module
from hookline.backends.tap import FunctionTap, Label, NotAFunction
from hookline.backends.undoing import Undoing

_numbers = itertools.count(1)


class Through:
    """What a forward that was taken out does, where somebody still has it: it runs the one before."""

    def __call__(self, original: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        return original(*args, **kwargs)

    traced = __call__


class ReplacedForward:
    """Stands in for a module's forward; `fn` gets the one before and the arguments.

    It keeps its module alive no more than a hook does. `number` is 0 while it is not in place.
    """

    followed = True
    """Whether torch.compile follows its code into graphs, which then depend on it."""

    # No __dict__: what wraps it by functools.update_wrapper would get a copy of that.
    __slots__ = ("__weakref__", "_attribute", "_class_has", "_held", "_is_method", "before", "fn", "number", "tap")

    def __init__(self, module: Module, attribute: str, fn: Callable[..., Any], label: Label) -> None:
        self._held, self._attribute = weakref.ref(module), attribute
        self.number = 0
        self.fn = fn
        self.tap = FunctionTap(fn, label)
        self.before: Any = None
        self._class_has: Any = None
        self._is_method = False

    @property
    def original(self) -> Any:
        """The forward that was there before."""
        if self.before is not None:
            return self.before
        return MethodType(self._class_has, self._held()) if self._is_method else self._class_has

    __wrapped__ = original

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.fn(self.original, *args, **kwargs)

    @property
    def __code__(self) -> Any:
        raise NotAFunction(self.tap.label)

    __globals__ = __code__

    @changing
    def place(self) -> None:
        """Puts it in place; `remove` may be done before as well."""
        module = self._held()
        self.before = own_forward(module, self._attribute)
        if self.before is None:
            found = getattr(module, self._attribute)
            self._is_method = getattr(found, "__self__", None) is module
            self._class_has = found.__func__ if self._is_method else found
        self.number = next(_numbers)
        object.__setattr__(module, self._attribute, self)

    @changing
    def remove(self) -> None:
        """Takes it out, also from between others that were placed before and after it."""
        module = self._held()
        self.number = 0
        self.fn = self.tap.fn = Through()
        if module is None:
            return
        outer, found = None, own_forward(module, self._attribute)
        while isinstance(found, ReplacedForward) and found is not self:
            outer, found = found, found.before
        if found is not self:
            self._leave_to_others(module)
        elif outer is not None:
            outer._class_has, outer._is_method = self._class_has, self._is_method
            outer.before = self.before  # last: by this it is known to be out
        elif self.before is None:
            object.__delattr__(module, self._attribute)
        else:
            object.__setattr__(module, self._attribute, self.before)

    def _leave_to_others(self, module: Module) -> None:
        """Somebody wrapped it: their forward leads here, and on. Where they noted it on the module, it goes."""
        for name, value in list(vars(module).items()):
            if value is self:
                object.__setattr__(module, name, self.original)

    def _of_class(self, module: Module) -> Any:
        return MethodType(self._class_has, module) if self._is_method else self._class_has

    def followed_original(self) -> Any:
        """As `original`, in words that the torch.compile of torch 2.12 understands as well."""
        if self.before is not None:
            return self.before
        return partial(self._class_has, self._held()) if self._is_method else self._class_has

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        if self.before is not None:
            return copy.deepcopy(self.before, memo)
        module = self._held()
        return self._of_class(memo.get(id(module), module))

    def __reduce__(self) -> Any:
        if self.before is not None:
            return copy.copy, (self.before,)
        return getattr, (self._held(), self._attribute)


def own_forward(module: Module, attribute: str) -> Any:
    """The forward in the instance's own __dict__; None where it has that of its class."""
    found = getattr(module, attribute)
    kind: Any = type(module)
    if getattr(found, "__self__", None) is module and getattr(found, "__func__", None) is getattr(kind, attribute):
        return None  # vars(module) would make Python 3.11 build a real __dict__, and slow down the module
    return vars(module).get(attribute)


def replaced(undoing: Undoing, attribute: str, module: Module, fn: Callable[..., Any], label: Label) -> None:
    """Has `fn(original_forward, *args, **kwargs)` run in place of the forward."""
    forward = ReplacedForward(module, attribute, fn, label)
    undoing.noted(forward.remove)
    forward.place()
