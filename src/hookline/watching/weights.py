"""Weights: parameters, their gradients, and what an optimizer step does to them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hookline.backends.protocol import Backend
from hookline.hooks.select import Place
from hookline.watching.steps import Gathered, Key


class Weights:
    """The parameters of the watched modules, around an optimizer step.

    Gradients are read when the optimizer starts its step: after accumulation, clipping and the
    unscaling of a GradScaler, as they are really used.
    """

    def __init__(self, backend: Backend, places: list[Place], gather: Callable[[Key, Any], None]) -> None:
        self._backend = backend
        self._places = places
        self._gather = gather
        self._before: dict[str, Any] = {}

    def named(self) -> dict[str, Any]:
        """Each parameter once, by its dotted name; asked anew, since modules may replace theirs."""
        found: dict[int, tuple[str, Any]] = {}
        for place in self._places:
            for own, parameter in self._backend.own_parameters(place.module).items():
                name = f"{place.name}.{own}" if place.name else own
                found.setdefault(id(parameter), (name, parameter))
        return dict(found.values())

    def before_step(self, held: set[int]) -> None:
        """Reduces the parameters in `held`, those of the optimizer that steps."""
        backend = self._backend
        for name, parameter in self.named().items():
            if id(parameter) not in held:
                continue
            self._gather(Key(name, "param", 0, "train"), parameter)
            if (grad := backend.gradient(parameter)) is not None:
                self._gather(Key(name, "param_grad", 0, "train"), grad)
                self._before[name] = backend.snapshot(parameter)

    def after_step(self, held: set[int], gathered: Gathered) -> None:
        backend = self._backend
        before, self._before = self._before, {}
        for name, parameter in self.named().items():
            if (old := before.get(name)) is None or id(parameter) not in held:
                continue
            key = Key(name, "update", 0, "train")
            now = backend.detached(parameter)
            self._gather(key, now - old)
            grad = backend.gradient(parameter)
            if grad is not None and (lost := backend.lost(old, now, grad)) is not None:
                gathered.add_number(key, "lost", lost)
