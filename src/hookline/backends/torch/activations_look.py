"""Activations look: which module's output goes into which activation, where that is a function and no module.

`F.relu(self.fc(x))` leaves no module whose output could be judged; what comes out of `fc` tells as much. A tensor
is known by its memory and by how often that was written to. Of tanh and sigmoid only those count whose result goes
into a layer: what multiplies or is put out is a gate or the model's answer, and may be at its ends.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch.multiprocessing.reductions import StorageWeakRef

from hookline.backends.torch.compat import version
from hookline.wiring import Place

ACTIVATIONS = {
    **dict.fromkeys(("relu", "relu_"), "relu"),
    **dict.fromkeys(("tanh", "tanh_"), "tanh"),
    **dict.fromkeys(("sigmoid", "sigmoid_"), "sigmoid"),
}
LAYERS = frozenset({"addmm", "mm", "linear", "convolution", "_convolution", "mkldnn_convolution"})
MOST = 256


class _Known(NamedTuple):
    """A tensor by its memory, and what made it."""

    memory: StorageWeakRef
    version: int
    size: int
    by: Any


class Activations:
    """Which modules' outputs went into activations; `found` has the modules, and which activations ran where."""

    def __init__(self, place: Callable[[str, str], Place]) -> None:
        self.found: list[Place] = []
        self._place = place
        self._outputs: dict[int, _Known] = {}
        self._bounded: dict[int, _Known] = {}

    def ended(self, module: str, tensor: torch.Tensor) -> None:
        """A module has put out a tensor; what contains it ends later, and is not meant."""
        known = self._outputs.get(_memory(tensor))
        if known is None or known.version != version(tensor):
            _note(self._outputs, tensor, module)

    def see(self, name: str, taken: list[torch.Tensor], made: list[torch.Tensor]) -> None:
        """An operator has run."""
        if name in LAYERS:
            for one in taken if self._bounded else ():
                known = self._bounded.get(_memory(one))
                if known is not None and known.by not in self.found:
                    self.found.append(known.by)
            return
        kind = ACTIVATIONS.get(name)
        if kind is None or not taken or not made or len(self.found) >= MOST:
            return
        output = self._outputs.get(_memory(taken[0]))
        if output is None or output.version != version(taken[0]) or output.size != taken[0].numel():
            return
        where = self._place(kind, "")
        place = Place(kind, output.by, where.line, where.module)
        if kind != "relu":
            _note(self._bounded, made[0], place)
        elif place not in self.found:
            self.found.append(place)


def _note(known: dict[int, _Known], tensor: torch.Tensor, by: Any) -> None:
    memory = StorageWeakRef(tensor.untyped_storage())  # type: ignore[no-untyped-call]
    known[memory.cdata] = _Known(memory, version(tensor), tensor.numel(), by)


def _memory(tensor: torch.Tensor) -> int:
    return int(tensor.untyped_storage()._cdata)
