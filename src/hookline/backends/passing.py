"""Passing: one call's way through a module whose gradients are heard or replaced."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from hookline.backends.nouns import Tensor, Tree


class Told(Protocol):
    """Who is told the gradients of one call; `numbers` are the places at which one tensor stands.

    `_hear_both` may be called in place of the other two, by a backend that has both at once: of the only tensor
    that left, and of the only one that entered. `_hear_doubt` is told what a backward finds to remark. The names
    are private since a call of a recording, which users have, is one of these.
    """

    def _hear_input(self, numbers: Sequence[int], grad: Tensor) -> None: ...
    def _hear_output(self, numbers: Sequence[int], grad: Tensor) -> None: ...
    def _hear_both(self, grad_output: Tensor, grad_input: Tensor) -> None: ...
    def _hear_doubt(self, sentence: str) -> None: ...


class Asked(Protocol):
    """Who is told the gradients of a call's outputs, and may replace all those of its inputs, in `_ask`.

    `_hear_both` is as that of `Told`, and answers as `_ask` does: with gradients to go on with, or None.
    """

    def _ask(self, grads: list[Any]) -> list[Any] | None: ...
    def _hear_output(self, numbers: Sequence[int], grad: Tensor) -> None: ...
    def _hear_both(self, grad_output: Tensor, grad_input: Tensor) -> list[Any] | None: ...


class Listening(Protocol):
    """One call's way through a module with its gradients heard and nothing changed.

    `remark` says in the audit what looking may have changed.
    """

    remark: str | None

    def enter(self, args: Tree, kwargs: Tree) -> tuple[Tree, Tree]:
        """The arguments to go on with."""

    def leave(self, output: Tree, call: int, references: int) -> Tree:
        """The output to go on with; see `GradientTaps.heard`."""


class Joining(Protocol):
    """One call's way through a module whose input gradients may be replaced; `live` inputs have one."""

    live: int

    def enter(self, args: Tree, kwargs: Tree) -> tuple[Tree, Tree]:
        """The arguments to go on with."""

    def leave(self, output: Tree, call: int, references: int) -> Tree:
        """The output to go on with; see `GradientTaps.heard`."""
