"""Hanging: hooks on the tensors of a graph, which hand gradients to operators.

A graph calls these functions when it is run, by the backend "eager", or when its backward is traced, by all
others. What a hook may replace goes through one operator that takes and gives all gradients: inductor keeps
operators in order only where one needs what another gives, whatever their effects.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import torch

Tensor = torch.Tensor
HEARD, REPLACED, COLLECTED, DELIVERED = "heard", "replaced", "collected", "delivered"
"""What is done with the gradient of a place: see `Look`."""


def hang(tensor: Tensor, role: str, look: Look, place: int) -> Tensor:
    """`tensor`, with a hook that hands its gradient to `look`."""
    tensor.register_hook(partial(getattr(look, role), place))  # type: ignore[no-untyped-call]
    return tensor


class Look:
    """One look through a door: where the gradients of its places go."""

    def __init__(self, ticket: Tensor | None, door: int) -> None:
        self._ticket, self._door = ticket, door
        self._collected: dict[int, Any] = {}
        self._given: dict[int, Any] = {}

    def heard(self, place: int, grad: Tensor) -> None:
        torch.ops.hookline.heard(grad, self._ticket, place, self._door)

    def replaced(self, place: int, grad: Tensor) -> Any:
        """What goes on in place of the only gradient there is."""
        return torch.ops.hookline.gated([grad], self._ticket, [place], self._door)[0]

    def collected(self, place: int, grad: Tensor) -> None:
        """Notes one of several gradients until the first of them goes on."""
        if place in self._collected:  # of a backward that ended in between
            self._collected = {}
        self._collected[place] = grad

    def delivered(self, place: int, grad: Tensor) -> Any:
        """What goes on in place of a gradient that was collected."""
        if self._collected:
            places, grads = list(self._collected), list(self._collected.values())
            self._collected = {}
            new = torch.ops.hookline.gated(grads, self._ticket, places, self._door)
            self._given = dict(zip(places, new, strict=True))
        return self._given.pop(place)
