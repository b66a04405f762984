"""Identity gradients: those in frameworks that have an identity with a backward of one's own.

Such a framework gives two functions, and everything that hookline asks of gradients is made of them: `tap`
leads one tensor through an identity whose backward tells the gradient, `joint_tap` several at once. A module's
inputs are led through taps of this call alone, so what arrives there is the module's own share, whatever the
structure that the tensors stand in. Each place has a tap of its own: one tensor at several arguments, or returned
twice, has a gradient at each. (PyTorch goes another way that leaves the graph as it is: torch/grads/passages.py.)
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from functools import partial
from typing import Any

from hookline.backends.nouns import Module, Tensor, Tree
from hookline.backends.protocol import Asked, GradSink, JointSink, Told
from hookline.trees import leaves, map_leaves

Found = list[tuple[int, Any]]
"""Numbers of places, and the tensors that stand there."""

SHARED = (
    "one tensor came in at several places; they were told apart by passing it on as several, so code that "
    "compares its arguments by `is` may take another way"
)


class IdentityGradients:
    """The methods of `protocol.GradientTaps` but for parameters; a backend adds the first three."""

    tensor: type

    def tap(self, tensor: Tensor, fn: Callable[[Any], Any]) -> Any:
        """`tensor` to go on with; in the backward `fn(grad)` is called, and its result goes on, if not None."""
        raise NotImplementedError

    def joint_tap(self, tensors: list[Any], fn: Callable[[list[Any]], list[Any] | None]) -> list[Any]:
        """The tensors to go on with; in the backward `fn(grads)` is called once, and what it returns goes on."""
        raise NotImplementedError

    def is_live(self, tensor: Tensor) -> bool:
        """Whether a gradient may come to `tensor` from what is done with it now."""
        raise NotImplementedError

    def live(self, tree: Tree) -> tuple[Found, int]:
        """The places of `tree` with a live tensor, and how many places there are."""
        every = list(leaves(tree, self.tensor))
        return [(number, leaf) for number, leaf in enumerate(every) if self.is_live(leaf)], len(every)

    def needs_gradient(self, tree: Tree) -> bool:
        return bool(self.live(tree)[0])

    def site_memory(self, module: Module) -> Any:
        return None

    def heard(self, output: Tree, sink: GradSink, call: int = 0, references: int = 0) -> Any:
        """`output` to go on with; `sink` is told each gradient of it."""
        return self.heard_at(output, *self.live(output), sink)

    def heard_at(self, tree: Tree, found: Found, places: int, sink: GradSink) -> Any:
        """As `heard`, of the tensors that were found live."""
        return self.laid(tree, {number: self.tap(leaf, _told(sink, number)) for number, leaf in found})

    def joined(self, output: Tree, sink: JointSink, call: int = 0, references: int = 0) -> Any:
        """`output` to go on with; `sink` gets the gradients of all its places at once."""
        return self.joined_at(output, *self.live(output), sink)

    def joined_at(self, tree: Tree, found: Found, places: int, sink: JointSink) -> Any:
        """As `joined`, of the tensors that were found live."""
        if not found:
            return tree
        at = [number for number, _ in found]
        led = self.joint_tap([leaf for _, leaf in found], partial(_jointly, sink, at, places))
        return self.laid(tree, dict(zip(at, led, strict=True)))

    def listener(self, sink: Told, memory: Any) -> Passage:
        return Passage(self, partial(self.heard_at, sink=sink._hear_input), sink._hear_output)

    def joined_inputs(self, sink: Asked, memory: Any) -> Passage:
        return Passage(self, partial(self.joined_at, sink=sink._ask), sink._hear_output)

    def tapped(self, tensors: tuple[Any, ...], sink: JointSink) -> tuple[Any, ...]:
        """The tensors to go on with; `sink` gets the gradients that come back to this very point."""
        led: tuple[Any, ...] = self.joined(tensors, sink)
        return led

    def laid(self, tree: Tree, new: dict[int, Any]) -> Any:
        """`tree` with other tensors at the places of these numbers."""
        if not new:
            return tree
        numbers = itertools.count()
        return map_leaves(lambda leaf: new.get(next(numbers), leaf), tree, self.tensor)


class Passage:
    """One call's way through a module, by taps on inputs and outputs. `live` of the `places` have one."""

    remark: str | None = None
    live = places = 0

    def __init__(
        self, tapping: IdentityGradients, inwards: Callable[[Any, Found, int], Any], on_output: GradSink
    ) -> None:
        self._tapping, self._inwards, self._on_output = tapping, inwards, on_output

    def enter(self, args: Tree, kwargs: Any) -> tuple[Any, Any]:
        found, self.places = self._tapping.live((args, kwargs))
        self.live = len(found)
        self.remark = shared(found)
        both: tuple[Any, Any] = self._inwards((args, kwargs), found, self.places)
        return both

    def leave(self, output: Tree, call: int, references: int) -> Any:
        return self._tapping.heard(output, self._on_output)


def shared(found: Found) -> str | None:
    """What the audit has to say of arguments of which one tensor is several."""
    return None if len({id(leaf) for _, leaf in found}) == len(found) else SHARED


def _told(sink: GradSink, number: int) -> Callable[[Any], None]:
    def tell(grad: Tensor) -> None:
        if grad is not None:
            sink([number], grad)

    return tell


def spread(at: list[int], grads: list[Any], places: int) -> list[Any]:
    """The gradients of all places, None at those that are not told of."""
    shown: list[Any] = [None] * places
    for number, grad in zip(at, grads, strict=True):
        shown[number] = grad
    return shown


def _jointly(sink: JointSink, at: list[int], places: int, grads: list[Any]) -> list[Any] | None:
    new = sink(spread(at, grads, places))
    return None if new is None else [new[number] for number in at]
