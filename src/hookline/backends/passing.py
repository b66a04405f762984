"""Passing: one call's way through a module whose gradients are heard or replaced."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from hookline.backends.nouns import Tensor, Tree


class Listening(Protocol):
    """One call's way through a module with its gradients heard and nothing changed.

    `remark` says in the audit what looking may have changed; `on_doubt` is told what a backward finds to remark.
    `on_both(grad_output, grad_input)` may be called in place of the sinks, by a backend that has both at once: the
    only tensor that left, and the only one that entered.
    """

    remark: str | None
    on_doubt: Callable[[str], None] | None
    on_both: Callable[[Tensor, Tensor], Any] | None

    def enter(self, args: Tree, kwargs: Tree) -> tuple[Tree, Tree]:
        """The arguments to go on with."""

    def leave(self, output: Tree, call: int, references: int) -> Tree:
        """The output to go on with; see `GradientTaps.heard`."""


class Joining(Protocol):
    """One call's way through a module whose input gradients may be replaced; `live` inputs have one.

    `on_both` is as that of `Listening`, and answers as the sink of the inputs does.
    """

    live: int
    on_both: Callable[[Tensor, Tensor], Any] | None

    def enter(self, args: Tree, kwargs: Tree) -> tuple[Tree, Tree]:
        """The arguments to go on with."""

    def leave(self, output: Tree, call: int, references: int) -> Tree:
        """The output to go on with; see `GradientTaps.heard`."""
