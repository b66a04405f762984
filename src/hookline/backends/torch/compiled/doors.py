"""Doors: the numbers by which a graph refers to taps, and the structures whose tensors it hands over.

While a graph is traced, the arguments and the output of a module are taken apart (constants.py): tensors and whole
numbers go through the graph, everything else is described by constants. When it runs, the structure is put
together again.
"""

from __future__ import annotations

import dataclasses
import weakref
from collections.abc import Iterator
from typing import Any

from hookline.backends.protocol import Tap
from hookline.backends.torch.compiled.classes import Tapped
from hookline.backends.torch.compiled.tickets import Ticket

TENSOR, WHOLE, OPAQUE, VALUE = "tensor", "int", "object", "value"
Spec = Any
"""TENSOR or WHOLE, (VALUE, a constant), (OPAQUE, the name of its type), or (type, keys, specs of the parts)."""


class Door:
    """One place in a graph where a tap looks in."""

    __slots__ = ("_tapped", "after", "index", "latest", "live", "remembers", "spec")

    def __init__(self, state: Tapped | None, after: bool, index: int, spec: Spec, live: tuple[bool, ...]) -> None:
        self._tapped = (lambda: None) if state is None else weakref.ref(state)
        self.after, self.index, self.spec, self.live = after, index, spec, live
        self.remembers = False  # its latest call, for gradients that come without a ticket
        self.latest: Ticket | None = None

    def open(self) -> tuple[Any, Tap] | None:
        """The module and the tap that is there now; None where nobody looks any more."""
        state = self._tapped()
        module = None if state is None else state.module()
        if state is None or module is None or self.index >= len(taps := state.taps(self.after)):
            return None
        state.ran = True
        return module, taps[self.index]

    def built(self, tensors: Any, numbers: Any) -> Any:
        """(args, kwargs, output) with these tensors and whole numbers in their places."""
        args, kwargs, output = _built(self.spec, iter(tensors), iter(numbers))
        if (state := self._tapped()) is not None:
            kwargs = state.kwargs_of_call(kwargs, self.after, self.index)
        return args, kwargs, output


_doors: list[Door] = []


def door(number: int) -> Door:
    """The door of that number."""
    return _doors[number]


def add(one: Door) -> int:
    """The number of a new door."""
    _doors.append(one)
    return len(_doors) - 1


class Opaque:
    """Stands for an object that is no structure of tensors: compiled code can't hand it to a tap."""

    def __init__(self, kind: str) -> None:
        self.kind = kind

    def __repr__(self) -> str:
        return f"<a {self.kind}, which compiled code does not hand over>"


def _built(spec: Spec, tensors: Iterator[Any], numbers: Iterator[Any]) -> Any:
    if spec == TENSOR:
        return next(tensors)
    if spec == WHOLE:
        return next(numbers)
    if spec[0] == VALUE:
        return spec[1]
    if spec[0] == OPAQUE:
        return Opaque(spec[1])
    kind, keys, children = spec
    return _made(kind, keys, [_built(child, tensors, numbers) for child in children])


def _made(kind: type, keys: tuple[Any, ...], children: list[Any]) -> Any:
    """A structure of this type; constructors differ, and most are passed by."""
    if kind in (tuple, list):
        return kind(children)
    if issubclass(kind, tuple):
        return kind._make(children) if hasattr(kind, "_make") else kind(children)
    if issubclass(kind, list):
        fresh: Any = kind()
        fresh.extend(children)
        return fresh
    named = dict(zip(keys, children, strict=True))
    if kind is dict:
        return named
    if dataclasses.is_dataclass(kind):
        if issubclass(kind, dict):  # the outputs of transformers are both
            return kind(**named)
        fresh = object.__new__(kind)
        for name, value in named.items():
            object.__setattr__(fresh, name, value)
        return fresh
    fresh = kind()
    for key, value in named.items():
        fresh[key] = value
    return fresh
