"""Weights: parameters, their gradients, and what an optimizer step does to them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from hookline.backends.nouns import Tensor
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


class RowKeys(NamedTuple):
    """What the rows of one parameter are about."""

    param: Key
    param_grad: Key
    update: Key

    @classmethod
    def of(cls, name: str) -> RowKeys:
        """Those of the parameter of this name."""
        return cls(*(Key(name, kind, 0, "train") for kind in cls._fields))


class Weights:
    """The parameters that `named` gives, around an optimizer step; asked anew, since modules may replace theirs.

    Gradients are read when the optimizer starts its step: after accumulation, clipping and the
    unscaling of a GradScaler, as they are really used. A parameter that fails is told, once, and left out from
    then on; the others go on.
    """

    def __init__(self, backend: Backend, named: Callable[[], dict[str, Any]], gathered: Gathered) -> None:
        self._backend = backend
        self._named = named
        self._gathered = gathered
        self._keys: dict[str, RowKeys] = {}
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
        self._before = {}
        if self.stopped is not None:
            return
        self.stepped = True
        for name, parameter in self._named().items():
            if held is not None and id(parameter) not in held:
                continue
            if name in self.broken or (self.chosen is not None and not self.chosen(name)):
                continue
            try:
                self._take(name, parameter, gradients)
            except Exception as error:  # training goes on, whatever it is
                self._leave_out(name, error)

    def _take(self, name: str, parameter: Tensor, gradients: Mapping[int, Any] | None) -> None:
        """Reduces a parameter and its gradient; if it has one, the value of the parameter is kept."""
        backend, gathered, keys = self._backend, self._gathered, self._keys_of(name)
        value = backend.value_of(parameter)
        grad = backend.gradient(parameter) if gradients is None else gradients.get(id(parameter))
        room = None if grad is None else backend.room_like(value)
        if room is None or not gathered.add_copied(keys.param, value, room):
            if room is None:
                gathered.add(keys.param, value)
            room = None if grad is None else backend.snapshot(value)
        self.counts[name] = self.counts.get(name, 0) + 1
        if grad is not None:
            gathered.add(keys.param_grad, grad)
            self.with_gradient.add(name)
            self._before[name] = room, grad

    def norms(self) -> dict[int, float]:
        """By the id of a gradient that `before_step` has taken, its norm, as far as that is known already."""
        norms = self._gathered.norms("param_grad")
        return {id(grad): norms[name] for name, (_, grad) in self._before.items() if name in norms}

    def after_step(self) -> None:
        """Takes what the step changed."""
        before, self._before = self._before, {}
        for name, parameter in self._named().items() if before else ():
            if name not in before:
                continue
            try:
                self._take_update(self._keys_of(name).update, parameter, *before[name])
            except Exception as error:  # training goes on, whatever it is
                self._leave_out(name, error)

    def _take_update(self, key: Key, parameter: Tensor, old: Any, grad: Any) -> None:
        backend, gathered = self._backend, self._gathered
        if not gathered.add_difference(key, parameter, old):
            gathered.add(key, backend.update_of(parameter, old))
        if (lost := backend.lost(parameter, old, grad)) is not None:
            gathered.add_number(key, "lost", lost)

    def add_moments(self, moments: Mapping[int, Mapping[str, Any]]) -> None:
        """Takes what an optimizer keeps, by the ids of parameters."""
        for name, parameter in self._named().items() if self.stopped is None else ():
            if name in self.broken or (self.chosen is not None and not self.chosen(name)):
                continue
            try:
                for kind, value in moments.get(id(parameter), {}).items():
                    self._gathered.add(Key(name, kind, 0, "train"), value)
            except Exception as error:  # training goes on, whatever it is
                self._leave_out(name, error)

    def _keys_of(self, name: str) -> RowKeys:
        if (keys := self._keys.get(name)) is None:
            keys = self._keys[name] = RowKeys.of(name)
        return keys

    def _leave_out(self, name: str, error: Exception) -> None:
        failed = f"failed and stops: {type(error).__name__}: {error}"
        self.broken[name] = f"measuring it {failed}"
        warn(f"watching parameter {name!r} {failed}", stacklevel=3)
