"""Memory: what one step of training needs, estimated."""

from __future__ import annotations

from dataclasses import dataclass

from hookline.errors import InvalidArgument
from hookline.summaries.numbers import in_bytes
from hookline.summaries.tree import Cost

STATES = {"sgd": 0, "momentum": 1, "adagrad": 1, "lion": 1, "rmsprop": 1, "adam": 2, "adamw": 2}
"""Numbers that an optimizer keeps for each parameter it trains."""


@dataclass(frozen=True, slots=True)
class TrainingMemory:
    """Bytes that one training step holds at once, at the end of the forward.

    `activations` is what autograd keeps for the backward, exactly; `gradients` and `state` are there
    after the first step. Temporary memory of kernels and the allocator's reserve come on top.
    """

    optimizer: str
    parameters: int
    gradients: int
    state: int
    activations: int

    @property
    def total(self) -> int:
        """All of it."""
        return self.parameters + self.gradients + self.state + self.activations

    def __str__(self) -> str:
        parts = {"weights": self.parameters, "gradients": self.gradients, self.optimizer: self.state}
        parts["kept for backward"] = self.activations
        return f"{in_bytes(self.total)} = " + " + ".join(
            f"{in_bytes(size)} {name}" for name, size in parts.items()
        )


def estimate(total: Cost, optimizer: str) -> TrainingMemory:
    """The memory of a training step with that optimizer, its state in the parameters' own dtype."""
    states = STATES.get(optimizer.lower())
    if states is None:
        raise InvalidArgument(f"optimizer={optimizer!r} is not known; there are {', '.join(STATES)}.")
    trained = total.trainable_bytes
    return TrainingMemory(optimizer, total.param_bytes, trained, states * trained, total.saved_bytes)
