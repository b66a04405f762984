"""Optimizers: the steps of gluon.Trainer, heard while somebody watches. It has no hooks of its own."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from mxnet import gluon

from hookline.backends.gate import Gate
from hookline.backends.mxnet import compat, modules, parameters
from hookline.backends.nouns import Model
from hookline.backends.patching import Patch
from hookline.backends.undoing import Undoing

Heard = Callable[[set[int]], None]
"""Takes the ids of the arrays that a trainer holds."""


class Listener:
    """Who is told of the steps of a model's trainers."""

    def __init__(self, model: Model, before: Heard, after: Heard) -> None:
        self._model = model
        self.before, self.after = before, after

    def concerns(self, trainer: Any) -> set[int] | None:
        """The ids of the trainer's arrays if one of them is the model's, else None."""
        held = {id(parameters.first_array(p)) for p in compat.parameters_of(trainer) if compat.is_initialized(p)}
        own = (
            id(parameters.first_array(p))
            for _, block in modules.walk(self._model)
            for p in compat.own_parameters(block).values()
            if compat.is_initialized(p)
        )
        return held if any(key in held for key in own) else None


def hear_steps(undoing: Undoing, model: Model, before: Heard, after: Heard, gate: Gate | None = None) -> None:
    """Calls `before` and `after` around every step of a Trainer that holds a parameter of `model`."""
    _steps.use(undoing, Listener(model, before, after))


def _told(method: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(method)
    def step(trainer: Any, *args: Any, **kwargs: Any) -> Any:
        told = [(listener, held) for listener in _steps.users if (held := listener.concerns(trainer)) is not None]
        for listener, held in told:
            listener.before(held)
        result = method(trainer, *args, **kwargs)
        for listener, held in told:
            listener.after(held)
        return result

    return step


_steps: Patch[Listener] = Patch([(gluon.Trainer, "step"), (gluon.Trainer, "update")], _told)
