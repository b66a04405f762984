"""Gradients: taps by MindSpore's HookBackward operator, an identity whose backward calls a function.

A tap stands at each tensor of a structure by itself. MindSpore's own backward hooks, with a dict or a list as
output, report the gradient of the input under the name of the output's.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import mindspore as ms
from mindspore import ops

from hookline.backends.identity_gradients import IdentityGradients, Passage
from hookline.backends.mindspore import compat
from hookline.backends.nouns import Tensor
from hookline.backends.protocol import GradSink, JointSink


def is_live(tensor: ms.Tensor) -> bool:
    """Whether a gradient may come to `tensor`: in a graph, and of floats. (A comparison is in it, too.)"""
    return compat.in_graph(tensor) and (tensor.is_floating_point() or tensor.is_complex())


def tap(tensor: ms.Tensor, fn: Callable[[Any], Any]) -> ms.Tensor:
    """`tensor` to go on with; in the backward `fn(grad)` is called, and its result goes on, if not None."""

    def hear(grads: tuple[ms.Tensor, ...]) -> Any:
        new = fn(grads[0])
        return None if new is None else (new,)

    return ops.HookBackward(hear)(tensor)


def joint_tap(tensors: list[Any], fn: Callable[[list[Any]], list[Any] | None]) -> list[Any]:
    """The tensors to go on with; in the backward `fn(grads)` is called once, and what it returns goes on."""

    def hear(grads: tuple[ms.Tensor, ...]) -> Any:
        new = fn(list(grads))
        return None if new is None else tuple(new)

    led = ops.HookBackward(hear)(*tensors)
    return list(led) if len(tensors) > 1 else [led]


class JoinedInputs(Passage):
    """A passage whose sink gets the gradients of all inputs, or None for each if none of them comes.

    MindSpore computes no gradient of an input that `ms.grad` was not asked for, and does not tell so beforehand.
    """

    def __init__(self, backend: IdentityGradients, sink: JointSink, on_output: GradSink) -> None:
        super().__init__(backend, partial(backend.joined_at, sink=self._arrives), self._told)
        self._sink, self._told_output = sink, on_output
        self._arrived = self._waiting = False

    def _arrives(self, grads: list[Any]) -> list[Any] | None:
        self._arrived = True
        return self._sink(grads)

    def _told(self, numbers: Sequence[int], grad: Tensor) -> None:
        self._told_output(numbers, grad)
        if self.live and not self._waiting:
            self._waiting, self._arrived = True, False
            compat.after_backward(self._ends)

    def _ends(self) -> None:
        self._waiting = False
        if not self._arrived:
            self._sink([None] * self.places)
