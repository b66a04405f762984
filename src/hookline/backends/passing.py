"""Passing: one call's way through a module whose gradients are heard or replaced."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from hookline.backends.nouns import Tree


class Listening(Protocol):
    """One call's way through a module with its gradients heard and nothing changed.

    `remark` says in the audit what looking may have changed; `on_doubt` is told what a backward finds to remark.
    """

    remark: str | None
    on_doubt: Callable[[str], None] | None

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
