"""Tapping: gradients in frameworks that have an identity with a backward of one's own.

Such a framework gives two functions, and everything that hookline asks of gradients is made of them: `tap`
leads one tensor through an identity whose backward tells the gradient, `joint_tap` several at once. A module's
inputs are led through taps of this call alone, so what arrives there is the module's own share, whatever the
structure that the tensors stand in. (PyTorch goes another way that leaves the graph as it is: torch/passages.py.)
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from hookline.backends.protocol import GradSink, JointSink
from hookline.trees import leaves, map_leaves

Found = list[tuple[Any, list[int]]]


class Tapping:
    """The methods of `protocol.GradientTaps` but for parameters; a backend adds the first three."""

    tensor: type

    def tap(self, tensor: Any, fn: Callable[[Any], Any]) -> Any:
        """`tensor` to go on with; in the backward `fn(grad)` is called, and its result goes on, if not None."""
        raise NotImplementedError

    def joint_tap(self, tensors: list[Any], fn: Callable[[list[Any]], list[Any] | None]) -> list[Any]:
        """The tensors to go on with; in the backward `fn(grads)` is called once, and what it returns goes on."""
        raise NotImplementedError

    def is_live(self, tensor: Any) -> bool:
        """Whether a gradient may come to `tensor` from what is done with it now."""
        raise NotImplementedError

    def live(self, tree: Any) -> tuple[Found, int]:
        """The distinct live tensors of `tree` with the numbers of their places, and how many places there are."""
        found: dict[int, tuple[Any, list[int]]] = {}
        places = 0
        for leaf in leaves(tree, self.tensor):
            if self.is_live(leaf):
                found.setdefault(id(leaf), (leaf, []))[1].append(places)
            places += 1
        return list(found.values()), places

    def needs_gradient(self, tree: Any) -> bool:
        return bool(self.live(tree)[0])

    def site_memory(self, module: Any) -> Any:
        return None

    def heard(self, output: Any, sink: GradSink, call: int = 0, references: int = 0) -> Any:
        """`output` to go on with; `sink` is told each gradient of it."""
        return self._led(output, {id(leaf): self.tap(leaf, _told(sink, at)) for leaf, at in self.live(output)[0]})

    def listener(self, on_input: GradSink, on_output: GradSink, memory: Any) -> Passage:
        return Passage(partial(self.heard, sink=on_input), partial(self.heard, sink=on_output))

    def joined(self, output: Any, sink: JointSink, call: int = 0, references: int = 0) -> Any:
        """`output` to go on with; `sink` gets the gradients of all its places at once."""
        found, places = self.live(output)
        if not found:
            return output
        led = self.joint_tap([leaf for leaf, _ in found], partial(_jointly, sink, [at for _, at in found], places))
        return self._led(output, {id(leaf): new for (leaf, _), new in zip(found, led, strict=True)})

    def joined_inputs(self, sink: JointSink, on_output: GradSink, memory: Any) -> Passage:
        return Passage(partial(self.joined, sink=sink), partial(self.heard, sink=on_output), self.live)

    def tapped(self, tensors: tuple[Any, ...], sink: JointSink) -> tuple[Any, ...]:
        """The tensors to go on with; `sink` gets the gradients that come back to this very point."""
        led: tuple[Any, ...] = self.joined(tensors, sink)
        return led

    def _led(self, tree: Any, new: dict[int, Any]) -> Any:
        return map_leaves(lambda leaf: new.get(id(leaf), leaf), tree, self.tensor) if new else tree


class Passage:
    """One call's way through a module: inputs and outputs are led through taps. `live` counts tapped inputs."""

    remark: str | None = None
    live = 0

    def __init__(
        self,
        inwards: Callable[[Any], Any],
        outwards: Callable[[Any], Any],
        count: Callable[[Any], tuple[Found, int]] | None = None,
    ) -> None:
        self._inwards, self._outwards, self._count = inwards, outwards, count

    def enter(self, args: Any, kwargs: Any) -> tuple[Any, Any]:
        if self._count is not None:
            self.live = len(self._count((args, kwargs))[0])
        both: tuple[Any, Any] = self._inwards((args, kwargs))
        return both

    def leave(self, output: Any, call: int, references: int) -> Any:
        return self._outwards(output)


def _told(sink: GradSink, numbers: list[int]) -> Callable[[Any], None]:
    def tell(grad: Any) -> None:
        if grad is not None:
            sink(numbers, grad)

    return tell


def _jointly(sink: JointSink, at: list[list[int]], places: int, grads: list[Any]) -> list[Any] | None:
    shown: list[Any] = [None] * places
    for numbers, grad in zip(at, grads, strict=True):
        for number in numbers:
            shown[number] = grad
    new = sink(shown)
    return None if new is None else [new[numbers[0]] for numbers in at]
