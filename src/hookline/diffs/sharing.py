"""Sharing: a tensor that one call gives and another one gets is copied and measured once."""

from __future__ import annotations

import weakref
from collections import OrderedDict
from contextlib import suppress
from typing import Any

from hookline.backends.protocol import Backend
from hookline.diffs.measures import Apart, apart, same_bits
from hookline.diffs.reading import Leaf, Side

RECENT = 64
"""So many tensors are known again: a container gives what its last part gave, a shortcut gets what a block got."""


class Recent:
    """What is known of the tensors that were seen last, as long as nobody writes to them."""

    def __init__(self, backend: Backend) -> None:
        self._writes = backend.version
        self._known: OrderedDict[int, tuple[weakref.ref[Any], int, Any]] = OrderedDict()

    def find(self, tensor: Any) -> Any:
        """What was noted of this tensor; None where nothing was, or its memory was written to."""
        found = self._known.get(id(tensor))
        if found is None or found[0]() is not tensor or found[1] != self._writes(tensor):
            return None
        return found[2]

    def note(self, tensor: Any, fact: Any) -> None:
        """Keeps what is known of a tensor, and forgets the oldest one."""
        with suppress(TypeError, KeyError):  # it can't be referred to; a thread of the model's was quicker
            self._known.pop(id(tensor), None)
            self._known[id(tensor)] = weakref.ref(tensor), self._writes(tensor), fact
            if len(self._known) > RECENT:
                self._known.popitem(last=False)


class SharedCopies:
    """Copies tensors; one that was copied a moment ago, and has the same bits still, gives the same copy."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self._recent = Recent(backend)

    def __call__(self, tensor: Any) -> Any:
        """A copy that no later operation changes. Others may have it too: it is not to be written to."""
        if not self._backend.is_readable(tensor):
            return self._backend.snapshot(tensor)
        known = self._recent.find(tensor)
        if known is not None and self._is_same(tensor, known):
            return known
        copy = self._backend.snapshot(tensor)
        self._recent.note(tensor, copy)
        return copy

    def _is_same(self, tensor: Any, copy: Any) -> bool:
        """By the numbers themselves: code that writes past its framework's counting is seen too."""
        return same_bits(self._backend.host(tensor), self._backend.host(copy))


class Gaps:
    """How far the tensors of a run are from those of the reference."""

    def __init__(self, backend: Backend, reference: Side) -> None:
        self._backend, self._reference = backend, reference
        self._recent = Recent(backend)

    def __call__(self, wanted: Leaf, tensor: Any) -> Apart:
        """How far a tensor is from the one that is wanted there."""
        known = self._recent.find(tensor) if self._reference.in_memory else None
        if known is not None and known[0] is wanted.tensor:
            return known[1]  # type: ignore[no-any-return]
        gap = apart(self._reference.array(wanted), self._backend.host(tensor))
        self._recent.note(tensor, (wanted.tensor, gap))
        return gap
