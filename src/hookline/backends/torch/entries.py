"""Entries: taps that are called alike, in the hook dictionaries of modules under one number.

`backends/_entries.c` does the same; what is here serves where no compiler was.
"""

from __future__ import annotations

import weakref
from collections import OrderedDict
from collections.abc import Iterator
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from torch import nn

Held = list[weakref.ref[nn.Module]]


class EntriesByPython:
    """Entries under the number `key` in the dictionaries of these names; the second notes which take kwargs.

    `held` gets each module before anything is put there.
    """

    def __init__(
        self, hooks_name: str, kwargs_name: str | None, key: int, order_numbers: Iterator[int], held: Held
    ) -> None:
        self.key, self.held = key, held
        self._hooks_name, self._kwargs_name, self._order_numbers = hooks_name, kwargs_name, order_numbers

    def put(self, module: nn.Module, tap: Any) -> OrderedDict[int, Any] | None:
        """The hooks of the module, with the tap; None where something is under that number already."""
        hooks: OrderedDict[int, Any] = getattr(module, self._hooks_name)
        if self.key in hooks:
            return None
        self.held.append(weakref.ref(module))
        tap.order = next(self._order_numbers)
        if self._kwargs_name is not None:
            getattr(module, self._kwargs_name)[self.key] = True
        hooks[self.key] = tap
        return hooks

    def remove(self) -> None:
        """Takes all off; a second time does nothing."""
        for held in self.held:
            if (module := held()) is not None:
                getattr(module, self._hooks_name).pop(self.key, None)
                if self._kwargs_name is not None:
                    getattr(module, self._kwargs_name).pop(self.key, None)


if TYPE_CHECKING or find_spec("hookline.backends._entries") is not None:
    from hookline.backends._entries import Entries as Entries
else:
    Entries = EntriesByPython
