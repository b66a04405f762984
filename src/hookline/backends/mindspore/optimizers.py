"""Optimizers: their steps, heard where every optimizer is called.

MindSpore has no hooks on optimizers. They are cells, called with the gradients; for the time of a watch, the call
of their base classes leads through here.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from mindspore import nn
from mindspore.experimental import optim

from hookline.backends.changing import changing
from hookline.backends.mindspore import compat
from hookline.backends.mindspore.cells import every
from hookline.backends.undoing import Undoing

BASES: tuple[type, ...] = (nn.Optimizer, optim.Optimizer)
Ears = tuple[Callable[..., None], Callable[[set[int]], None], Callable[[], set[int]]]

_ears: list[Ears] = []


def hear_steps(
    undoing: Undoing, model: nn.Cell, before: Callable[..., None], after: Callable[[set[int]], None]
) -> None:
    """Calls `before(held, gradients)` and `after(held)` around each step of an optimizer of this model."""

    def owned() -> set[int]:
        return {id(p) for _, cell in every(model) for p in compat.parameters(cell).values()}

    ears: Ears = (before, after, owned)
    undoing.noted(_set_heard, ears, False)
    _set_heard(ears, True)


@changing
def _set_heard(ears: Ears, wanted: bool) -> None:
    _ears[:] = [other for other in _ears if other is not ears] + [ears] * wanted
    for base in BASES:
        if _ears:
            base.__call__ = _step  # type: ignore[method-assign]
        elif base.__dict__.get("__call__") is _step:
            del base.__call__


def _step(self: Any, *args: Any, **kwargs: Any) -> Any:
    held = {id(parameter) for parameter in self.parameters}
    grads = args[0] if args and isinstance(args[0], (tuple, list)) else ()
    by_parameter = {id(p): grad for p, grad in zip(self.parameters, grads, strict=False)}
    told = [(before, after) for before, after, owned in _ears if held & owned()]
    for before, _ in told:
        before(held, by_parameter)
    result = nn.Cell.__call__(self, *args, **kwargs)
    for _, after in told:
        after(held)
    return result
