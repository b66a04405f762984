"""Trainers: the steps of gluon.Trainer, heard while somebody watches. It has no hooks of its own."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from mxnet import gluon

from hookline.backends.mxnet import blocks, compat, parameters
from hookline.backends.protocol import Undo

Heard = Callable[[set[int]], None]
"""Takes the ids of the arrays that a trainer holds."""

METHODS = ("step", "update")

_listeners: list[Listener] = []
_originals: dict[str, Callable[..., Any]] = {}


class Listener:
    """Who is told of the steps of a model's trainers."""

    def __init__(self, model: Any, before: Heard, after: Heard) -> None:
        self._model = model
        self.before, self.after = before, after

    def concerns(self, trainer: Any) -> set[int] | None:
        """The ids of the trainer's arrays if one of them is the model's, else None."""
        held = {id(parameters.first_array(p)) for p in compat.parameters_of(trainer) if compat.is_initialized(p)}
        own = (
            id(parameters.first_array(p))
            for _, block in blocks.walk(self._model)
            for p in compat.own_parameters(block).values()
            if compat.is_initialized(p)
        )
        return held if any(key in held for key in own) else None


def hear_steps(model: Any, before: Heard, after: Heard) -> Undo:
    """Calls `before` and `after` around every step of a Trainer that holds a parameter of `model`."""
    listener = Listener(model, before, after)
    if not _listeners:
        for name in METHODS:
            _originals[name] = getattr(gluon.Trainer, name)
            setattr(gluon.Trainer, name, _told(_originals[name]))
    _listeners.append(listener)

    def remove() -> None:
        if listener in _listeners:
            _listeners.remove(listener)
            if not _listeners:
                for name in METHODS:
                    setattr(gluon.Trainer, name, _originals.pop(name))

    return remove


def _told(method: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(method)
    def step(trainer: Any, *args: Any, **kwargs: Any) -> Any:
        told = [(listener, held) for listener in _listeners if (held := listener.concerns(trainer)) is not None]
        for listener, held in told:
            listener.before(held)
        result = method(trainer, *args, **kwargs)
        for listener, held in told:
            listener.after(held)
        return result

    return step
