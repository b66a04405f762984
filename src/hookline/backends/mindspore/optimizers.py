"""Optimizers: their steps, heard where every optimizer is called.

MindSpore has no hooks on optimizers. They are cells, called with the gradients; for the time of a watch, the call
of their base classes leads through here.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

from mindspore import nn
from mindspore.experimental import optim

from hookline.backends.gate import Gate
from hookline.backends.mindspore import compat
from hookline.backends.mindspore.modules import every
from hookline.backends.patching import Patch
from hookline.backends.undoing import Undoing


class Listener(NamedTuple):
    """Who is told of the steps of the optimizers that hold one of the parameters `owned()`."""

    before: Callable[..., None]
    after: Callable[[set[int]], None]
    owned: Callable[[], set[int]]


def hear_steps(
    undoing: Undoing,
    model: nn.Cell,
    before: Callable[..., None],
    after: Callable[[set[int]], None],
    gate: Gate | None = None,
) -> None:
    """Calls `before(held, gradients)` and `after(held)` around each step of an optimizer of this model."""

    def owned() -> set[int]:
        return {id(p) for _, cell in every(model) for p in compat.parameters(cell).values()}

    _steps.use(undoing, Listener(before, after, owned))


def _told(call: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(call)
    def step(self: Any, *args: Any, **kwargs: Any) -> Any:
        held = {id(parameter) for parameter in self.parameters}
        grads = args[0] if args and isinstance(args[0], (tuple, list)) else ()
        by_parameter = {id(p): grad for p, grad in zip(self.parameters, grads, strict=False)}
        told = [listener for listener in _steps.users if held & listener.owned()]
        for listener in told:
            listener.before(held, by_parameter)
        result = call(self, *args, **kwargs)
        for listener in told:
            listener.after(held)
        return result

    return step


_steps: Patch[Listener] = Patch([(nn.Optimizer, "__call__"), (optim.Optimizer, "__call__")], _told)
