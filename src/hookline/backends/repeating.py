"""Repeating: what a backend tells of forwards that run again, by us or by activation checkpointing."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any, Protocol

from hookline.backends.nouns import Model, Module
from hookline.backends.undoing import Steps, Undoing


class Repeating(Protocol):
    """A model that is run several times, each time like the first; `defaults.Defaults` knows of no randomness."""

    def keep_as_it_is(self, steps: Steps, model: Model) -> None:
        """Notes the steps after which a model that was run is what it is now, and so is all randomness."""

    def put_grads_aside(self, undoing: Undoing, model: Model) -> None:
        """Until the undoing, parameters have no gradients of their own; then they have those of now."""

    def random_state(self) -> Any:
        """The state of the random numbers; None where the framework has none of its own."""

    def restore_random(self, state: Any) -> None:
        """Goes on with the random numbers of `state`."""

    def same_random(self, one: Any, other: Any) -> bool:
        """Whether two states give the same random numbers."""

    def graph_free(self) -> AbstractContextManager[Any]:
        """A block in which nothing is kept for a backward."""


class Recomputation(Protocol):
    """Activation checkpointing; `defaults.Defaults` is for frameworks where a forward never runs again."""

    def backward_number(self) -> int:
        """Which backward is under way; -1 where none is."""

    def in_recompute(self, called: bool = False) -> bool:
        """Whether the forward under way repeats an earlier one; `called`: whether there is one to repeat."""

    def calls_under_way(self, module: Module) -> int:
        """How many calls of `module` this thread is in, one within the other; 0 where that can't be told."""

    def sequence_number(self) -> int:
        """A number that grows with the graph; tells calls apart for `recomputed`."""

    def recomputed(self, calls: list[Any]) -> Any:
        """Which of these calls the forward under way repeats; None where it can't be told."""
