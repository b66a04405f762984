"""Flow: from which calls the memory of a tensor came, followed through operations between modules."""

from __future__ import annotations

from typing import Any

import torch

from hookline.backends.torch.describe import storage_of
from hookline.trees import leaves


class Flow:
    """For each piece of memory, the calls of leaf modules whose results went into it.

    Memory, not tensor objects: a view shares what its base was made of, and an operation in place adds to it.
    """

    def __init__(self) -> None:
        # The storages are kept, not just their ids: an id may come again.
        self._sources: dict[int, tuple[Any, set[int]]] = {}

    def into(self, tree: Any) -> set[int]:
        """The calls that the tensors of a structure come from."""
        found: set[int] = set()
        for tensor in leaves(tree, torch.Tensor):
            known = self._sources.get(id(storage_of(tensor)))
            if known is not None:
                found |= known[1]
        return found

    def passes(self, inputs: Any, outputs: Any) -> None:
        """An operation: what went into its inputs is in its outputs."""
        if found := self.into(inputs):
            for tensor in leaves(outputs, torch.Tensor):
                self._set(tensor, found | self.into(tensor))

    def comes_from(self, call: int, outputs: Any) -> None:
        """A leaf's results: what was before it is behind it now."""
        for tensor in leaves(outputs, torch.Tensor):
            self._set(tensor, {call})

    def _set(self, tensor: torch.Tensor, calls: set[int]) -> None:
        if (storage := storage_of(tensor)) is not None:
            self._sources[id(storage)] = storage, calls
