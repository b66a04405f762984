"""Hearing: what a framework tells of a training besides tensors: its losses, and numbers as learning rates."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from hookline.backends.nouns import Model, Tensor, Tree
from hookline.backends.undoing import Undoing
from hookline.wiring import Place


class HeardLoss(NamedTuple):
    """A backward that begins, and what it was called on."""

    tensors: tuple[Tensor, ...]
    """Not to be kept: they hold the graph."""
    value: Any
    """The mean of the tensor, without the factor of a GradScaler; of several tensors the sum of these. A number,
    or a tensor that nobody waits for (`read_numbers`); None where it can't be told."""
    shape: tuple[int, ...]
    """Of the first tensor."""
    line: str
    """Where it was called, in the user's code: "train.py:12"."""
    accumulates: bool
    """Whether gradients go to the parameters, as by `backward`; else they are returned, as by `autograd.grad`."""


class NumbersListener(Protocol):
    """Whoever keeps the numbers of a step."""

    @property
    def now(self) -> int:
        """The number of the step under way."""

    def wanted(self) -> bool:
        """Whether the numbers of this step are kept; nothing is computed where they are not."""

    def guarded(self, what: str, work: Callable[[], None]) -> None:
        """Does work for some numbers; if it raises, that is told once, and not done again."""

    def hear_loss(self, loss: HeardLoss) -> None:
        """A backward of the model begins."""

    def norms_of(self, gradients: Sequence[Any]) -> Mapping[int, float]:
        """By their ids, the norms of gradients in the memory of this process that an optimizer is about to use, as
        far as the C kernel can read them.

        Those that were reduced for the step are not read again: an optimizer is heard by whoever reduces before it
        is heard by who tells numbers.
        """

    def tell(self, name: str, value: Any) -> None:
        """A number of the step: a number, what `read_numbers` takes, or None to take it back."""


class Hearing(Protocol):
    """What is heard of a training while its model is watched; `defaults.Defaults` hears nothing."""

    def hear_losses(
        self, undoing: Undoing, model: Model, told: Callable[[HeardLoss], None], wanted: Callable[[], bool]
    ) -> None:
        """Has `told` called when a backward begins that leads to parameters of the model, while `wanted()`.

        Not for a backward within another: a checkpoint runs such. `told` must not raise.
        """

    def hear_numbers(self, undoing: Undoing, model: Model, listener: NumbersListener) -> None:
        """Has the losses, learning rates, weight decays and gradient norms of the model's training told."""

    def hear_moments(
        self,
        undoing: Undoing,
        model: Model,
        told: Callable[[Mapping[int, Mapping[str, Tensor]]], None],
        wanted: Callable[[], bool],
    ) -> None:
        """Has `told(moments)` called after each step of an optimizer of the model, while `wanted()`: by the id of
        a parameter, its "moment" and "moment_sq", as far as the optimizer keeps them."""

    def repeatable(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """What is needed to call a model with these once more, for `find_origin`; None where that can't be."""

    def find_origin(self, model: Model, call: Any) -> Place | None:
        """The operator in which the first NaN or Inf of a call is born; None where that is not found."""

    def fingerprint(self, tree: Tree) -> Any:
        """What tells one batch from another: of the first tensor, for `read_numbers`; None where there is none."""

    def scale(self, tree: Tree) -> Any:
        """How large the numbers of a batch are (RMS), of its first tensor, for `read_numbers`; None where that is
        not of floats."""

    def as_number(self, value: Any) -> Any:
        """A tensor without dimensions in a form that no later operation changes, for `read_numbers`; TypeError
        where it is no real number."""

    def read_numbers(self, values: list[Any]) -> list[float]:
        """The numbers, with one transfer for each device."""
