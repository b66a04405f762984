"""Trainers: the steps of gluon.Trainer, heard while somebody watches. It has no hooks of its own."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from mxnet import gluon

from hookline.backends.changing import changing
from hookline.backends.mxnet import blocks, compat, parameters
from hookline.backends.undoing import Undoing

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


def hear_steps(undoing: Undoing, model: Any, before: Heard, after: Heard) -> None:
    """Calls `before` and `after` around every step of a Trainer that holds a parameter of `model`."""
    listener = Listener(model, before, after)
    undoing.noted(_set_listening, listener, False)
    _set_listening(listener, True)


@changing
def _set_listening(listener: Listener, wanted: bool) -> None:
    _listeners[:] = [other for other in _listeners if other is not listener] + [listener] * wanted
    for name in METHODS:
        if _listeners and name not in _originals:
            _originals[name] = getattr(gluon.Trainer, name)
            setattr(gluon.Trainer, name, _told(_originals[name]))
        elif not _listeners and name in _originals:
            setattr(gluon.Trainer, name, _originals[name])
            del _originals[name]


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
