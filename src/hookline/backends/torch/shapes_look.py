"""Shapes look: two tensors that stretch each other on the way to the loss: (64,) against (64, 1) gives (64, 64).

A scalar, a weight of one element or a mask stretch nothing but themselves, and are not noted: only where both
operands have fewer elements than the result. Some do that on purpose, all pairs of a contrastive loss say, and
write it down: with as many dimensions on both sides. Who errs has one dimension too few. In a function that is a
loss, both are noted.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from math import prod
from types import FrameType

import torch
from torch.nn import functional

from hookline.wiring import Place

ARITHMETIC = {"sub", "add", "mul", "div", "rsub", "pow", "maximum", "minimum", "sub_", "add_", "mul_", "div_"}
LOSSES = {"mse_loss", "smooth_l1_loss", "huber_loss", "binary_cross_entropy", "binary_cross_entropy_with_logits"}
MOST = 16
MOST_EXPANDED = 512
"""So many places are noted, and so many expanded tensors remembered."""
Shape = tuple[int, ...]


class Shapes:
    """What stretched what; `found` are the places."""

    def __init__(self, place: Callable[[str, str], Place]) -> None:
        self.found: list[Place] = []
        self._place = place
        self._expanded: dict[tuple[int, Shape, Shape], Shape] = {}

    def see(self, name: str, taken: list[torch.Tensor], made: list[torch.Tensor]) -> None:
        """An operator has run."""
        if name == "expand" and len(taken) == len(made) == 1:
            if len(self._expanded) < MOST_EXPANDED:
                self._expanded[_key(made[0])] = tuple(taken[0].shape)
            return
        if (name not in ARITHMETIC and name not in LOSSES) or len(taken) < 2 or len(self.found) >= MOST:
            return
        if not any(one.requires_grad for one in taken[:2]):
            return
        left, right = self._shape(taken[0]), self._shape(taken[1])
        both = tuple(torch.broadcast_shapes(left, right))  # type: ignore[no-untyped-call]
        if prod(both) <= max(prod(left), prod(right)):
            return
        loss = name if name in LOSSES else _loss_under_way()
        if loss or (len(left) != len(right) and _stretched(left, both) == _stretched(right, both)):
            place = self._place(loss or name, f"{left} against {right} gives {both}")
            # Inside of a model all pairs are a habit; between its output and the loss, an accident.
            if (loss or not place.module) and place not in self.found:
                self.found.append(place)

    def _shape(self, tensor: torch.Tensor) -> Shape:
        """The shape that a tensor had before it was expanded."""
        if 0 not in tensor.stride():
            return tuple(tensor.shape)
        if (known := self._expanded.get(_key(tensor))) is not None:
            return known
        found = [1 if step == 0 else size for size, step in zip(tensor.shape, tensor.stride(), strict=True)]
        return tuple(found)


def _key(tensor: torch.Tensor) -> tuple[int, Shape, Shape]:
    return tensor.data_ptr(), tuple(tensor.shape), tuple(tensor.stride())


def _stretched(shape: Shape, to: Shape) -> list[int]:
    """The sizes of the dimensions along which a shape is stretched to another."""
    padded = (1,) * (len(to) - len(shape)) + shape
    return [size for own, size in zip(padded, to, strict=True) if own != size]


def _loss_under_way() -> str:
    """The function of torch.nn.functional under way, if it is a loss."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        name = frame.f_code.co_name
        if name.endswith("_loss") and frame.f_code.co_filename == functional.__file__:
            return name
        frame = frame.f_back
    return ""
