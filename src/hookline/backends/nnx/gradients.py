"""Gradients: arrays led through an identity whose backward tells, or replaces, what comes back.

In the backward JAX tells a gradient that is not there from one of zeros; hooks then see None, as elsewhere.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
from flax import nnx

from hookline.backends.identity_gradients import IdentityGradients, spread
from hookline.backends.nnx.compat import in_forward_mode, is_symbolic_zero, tracing
from hookline.backends.nnx.leaves import Array, NotSent, is_float
from hookline.backends.nnx.replay import Ear, hearing
from hookline.backends.nouns import Tensor, Tree
from hookline.backends.protocol import Asked, GradSink, JointSink, Told
from hookline.errors import Unsupported

Backward = Callable[[list[Any], list[Any]], "list[Any] | None"]
"""Takes what was carried along and the gradients, None where there is none; may return others."""


@jax.tree_util.register_static
class Note:
    """A word from the forward to the backward of one differentiation."""

    def __init__(self, word: Any) -> None:
        self.word = word

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Note) and self.word == other.word

    def __hash__(self) -> int:
        return hash(self.word)


def refuse_forward_mode(arrays: list[Any], what: str) -> None:
    """Unsupported where one of the arrays is on its way through jvp: JAX would only say that it can't go on."""
    if any(map(in_forward_mode, arrays)):
        raise Unsupported(
            backend="nnx",
            feature=f"{what} inside of jvp (jacfwd)",
            why="JAX has no forward derivative of code with a backward of its own, by which this is heard",
            instead="leave it out here (record or watch with grads=False and without ops, no hooks on gradients "
            "or operators), or differentiate by grad, vjp or jacrev",
        )


def led(
    arrays: list[Any],
    backward: Callable[..., Any],
    carried: tuple[Any, ...] = (),
    on_forward: Callable[[], Any] = lambda: None,
) -> list[Any]:
    """The arrays to go on with. In the backward it is `backward(word, carried, grads)`.

    `word` is what `on_forward` gave when the differentiation went by here.
    """
    refuse_forward_mode(arrays, "hearing gradients")

    @jax.custom_vjp  # type: ignore[untyped-decorator]
    def identity(carried: Any, *arrays: Any) -> tuple[Any, ...]:
        return arrays

    def forwards(carried: Any, *arrays: Any) -> Any:
        values = tuple(array.value for array in arrays)
        return values, (Note(on_forward()), tuple(one.value for one in carried))

    def backwards(kept: Any, grads: Any) -> Any:
        note, carried = kept
        shown = [None if is_symbolic_zero(grad) else grad for grad in grads]
        new = backward(note.word, list(carried), shown)
        return ((None,) * len(carried), *(shown if new is None else new))

    identity.defvjp(forwards, backwards, symbolic_zeros=True)
    return list(identity(carried, *arrays))


class NNXGradients(IdentityGradients):
    """`protocol.GradientTaps` but for parameters. What only listens is told by events (`passing`)."""

    tensor: type = Array

    def is_live(self, tensor: Tensor) -> bool:
        return not isinstance(tensor, (NotSent, nnx.Variable)) and is_float(tensor) and tracing()

    def joint_tap(self, tensors: list[Any], fn: Callable[[list[Any]], list[Any] | None]) -> list[Any]:
        return led(tensors, lambda word, carried, grads: fn(grads))

    def heard(self, output: Tree, sink: GradSink, call: int = 0, references: int = 0) -> Any:
        hearing(Ear(None, sink))
        return output

    def listener(self, sink: Told, memory: Any) -> Any:
        return hearing(Ear(sink._hear_input, sink._hear_output))

    def joined_inputs(self, sink: Asked, memory: Any) -> Any:
        return _JoinedInputs(self, sink._ask, sink._hear_output)


class _JoinedInputs:
    """A passage that brings the gradients of all inputs together, those of the outputs told before.

    Whether an input has a gradient is known only when the call is differentiated. Where none has, as in the first
    layer of a model, the outputs' gradients are all there is, and the hook runs when they come.
    """

    live = 1

    def __init__(self, taps: NNXGradients, sink: JointSink, on_output: GradSink) -> None:
        self._taps, self._sink, self._on_output = taps, sink, on_output
        self._entered = False
        self._places = 0

    def enter(self, args: Tree, kwargs: Any) -> tuple[Any, Any]:
        found, self._places = self._taps.live((args, kwargs))
        if not found:
            return args, kwargs

        def note() -> None:
            self._entered = True

        def backward(word: Any, carried: Any, grads: list[Any]) -> list[Any] | None:
            new = self._sink(spread(at, grads, self._places))
            return None if new is None else [new[number] for number in at]

        at = [number for number, _ in found]
        new = led([leaf for _, leaf in found], backward, on_forward=note)
        both: tuple[Any, Any] = self._taps.laid((args, kwargs), dict(zip(at, new, strict=True)))
        return both

    def leave(self, output: Tree, call: int, references: int) -> Any:
        found, _ = self._taps.live(output)
        if not found:
            return output

        def note() -> bool:
            entered, self._entered = self._entered, False
            return entered

        def backward(entered: bool, carried: Any, grads: list[Any]) -> None:
            for number, grad in zip(at, grads, strict=True):
                if grad is not None:
                    self._on_output([number], grad)
            if not entered:
                self._sink([None] * self._places)

        at = [number for number, _ in found]
        new = led([leaf for _, leaf in found], backward, on_forward=note)
        return self._taps.laid(output, dict(zip(at, new, strict=True)))


tapping = NNXGradients()
