"""Weights: parameters, their gradients, and what an optimizer step does to them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from hookline.backends.protocol import Backend
from hookline.hooks.select import Target
from hookline.reporting import warn
from hookline.watching.steps import Gathered, Key


def parameters_of(backend: Backend, targets: list[Target]) -> dict[str, Any]:
    """Each own parameter of the targets once, by its dotted name."""
    found: dict[int, tuple[str, Any]] = {}
    for target in targets:
        for own, parameter in backend.own_parameters(target.module).items():
            name = f"{target.name}.{own}" if target.name else own
            found.setdefault(id(parameter), (name, parameter))
    return dict(found.values())


class Weights:
    """The parameters that `named` gives, around an optimizer step; asked anew, since modules may replace theirs.

    Gradients are read when the optimizer starts its step: after accumulation, clipping and the
    unscaling of a GradScaler, as they are really used. A parameter that fails is told, once, and left out from
    then on; the others go on.
    """

    def __init__(
        self, backend: Backend, named: Callable[[], dict[str, Any]], gather: Callable[[Key, Any], None]
    ) -> None:
        self._backend = backend
        self._named = named
        self._gather = gather
        self._before: dict[str, tuple[Any, Any]] = {}
        self.broken: dict[str, str] = {}
        self.counts: dict[str, int] = {}  # at how many steps each was measured
        self.with_gradient: set[str] = set()
        self.stepped = False
        self.stopped: str | None = None  # why nothing is measured any more
        self.chosen: Callable[[str], bool] | None = None  # by name: those that are measured now, if not all

    def names(self) -> list[str]:
        """The parameters there are, by name."""
        return [] if self.stopped is not None else list(self._named())

    def before_step(self, held: set[int] | None, gradients: Mapping[int, Any] | None = None) -> None:
        """Takes parameters and gradients; of those in `held`, the ids of what the optimizer holds, if given.

        Gradients in `gradients`, by the id of a parameter, stand in for its own.
        """
        backend = self._backend
        self._before = {}
        if self.stopped is not None:
            return
        self.stepped = True
        for name, parameter in self._named().items():
            if name in self.broken or (held is not None and id(parameter) not in held):
                continue
            if self.chosen is not None and not self.chosen(name):
                continue
            with self._told(name):
                value = backend.value_of(parameter)
                self._gather(Key(name, "param", 0, "train"), value)
                self.counts[name] = self.counts.get(name, 0) + 1
                grad = backend.gradient(parameter) if gradients is None else gradients.get(id(parameter))
                if grad is not None:
                    self._gather(Key(name, "param_grad", 0, "train"), grad)
                    self.with_gradient.add(name)
                    self._before[name] = backend.snapshot(value), grad

    def after_step(self, gathered: Gathered) -> None:
        """Takes what the step changed."""
        backend = self._backend
        before, self._before = self._before, {}
        for name, parameter in self._named().items() if before else ():
            if name not in before:
                continue
            old, grad = before[name]
            key = Key(name, "update", 0, "train")
            with self._told(name):
                if not gathered.add_difference(key, parameter, old):
                    self._gather(key, backend.update_of(parameter, old))
                if (lost := backend.lost(parameter, old, grad)) is not None:
                    gathered.add_number(key, "lost", lost)

    def add_moments(self, moments: Mapping[int, Mapping[str, Any]]) -> None:
        """Takes what an optimizer keeps, by the ids of parameters."""
        for name, parameter in self._named().items() if self.stopped is None else ():
            if name in self.broken or (self.chosen is not None and not self.chosen(name)):
                continue
            with self._told(name):
                for kind, value in moments.get(id(parameter), {}).items():
                    self._gather(Key(name, kind, 0, "train"), value)

    @contextmanager
    def _told(self, name: str) -> Iterator[None]:
        try:
            yield
        except Exception as error:  # training goes on, whatever it is
            failed = f"failed and stops: {type(error).__name__}: {error}"
            self.broken[name] = f"measuring it {failed}"
            warn(f"watching parameter {name!r} {failed}", stacklevel=3)
