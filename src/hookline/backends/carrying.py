"""Carrying: what a backend tells of its weights, for a file that every framework can read (`neutral.py`)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from hookline.backends.nouns import Module, Tensor

if TYPE_CHECKING:
    from hookline.backends.neutral import Forms  # numpy, which a script that is launched may not want


class Carrying(Protocol):
    """What a backend tells of weights that go from one framework to another."""

    def forms_of(self, module: Module) -> Forms:
        """How a module's own weights are kept in a neutral file; those that it does not name, as they are."""

    def write_weight(self, tensor: Tensor, data: Tensor) -> None:
        """Has a parameter or buffer hold other numbers."""
