"""Holders: which optimizers hold which parameters of a model, and what they hold besides.

Asked at each step that is recorded; all is gone through again only where an optimizer holds other tensors than
before.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Mapping
from typing import Any

from hookline.backends.nouns import Tensor
from hookline.backends.wired import Group, WiringSource
from hookline.wiring import Optimizer, Wiring

Once = Mapping[int, tuple[Callable[[], Any], str]]
"""By id: a reference to what is or was a parameter of the model, and its name."""


class _Known:
    """An optimizer that has stepped; `number` is its place in `Wiring.optimizers`, None where it is another's."""

    def __init__(self, optimizer: Any, number: int | None) -> None:
        self.optimizer = weakref.ref(optimizer)
        self.number = number
        self.held: tuple[tuple[int, ...], int] | None = None


class Holders:
    """Notes optimizers in a wiring."""

    def __init__(self, wiring: Wiring, source: WiringSource | None) -> None:
        self._wiring, self._source = wiring, source
        self._known: list[_Known] = []
        self._groups: dict[int, dict[int, list[str]]] = {}  # of each optimizer: id of a tensor, its groups
        self._owners: dict[int, str] | None = None
        self._names: dict[str, int] = {}
        self._first_time = True
        self.is_known = False
        """Whether the optimizer that stepped last has to do with the model."""

    def note(
        self,
        step: int,
        optimizer: Any,
        params: Mapping[str, Tensor],
        version: int,
        once: Once,
        in_loss: set[int],
    ) -> bool:
        """An optimizer steps; whether that tells something new. `version` grows when `params` are others."""
        assert self._source is not None
        known = self._find(optimizer)
        held = self._source.held(optimizer)
        is_new = (held, version) != known.held
        if is_new:
            known.held, self._names = (held, version), {name: id(tensor) for name, tensor in params.items()}
            self._look(step, known, optimizer, once, in_loss)
        self.is_known = known.number is not None
        if known.number is not None:
            one = self._wiring.optimizers[known.number]
            one.steps += one.last_step != step
            one.last_step = step
            one.first_step = step if one.first_step is None else one.first_step
        return is_new

    def _find(self, optimizer: Any) -> _Known:
        assert self._source is not None
        for one in self._known:
            there = one.optimizer()
            if there is not None and self._source.is_same_optimizer(there, optimizer):
                return one
        self._known.append(_Known(optimizer, None))
        return self._known[-1]

    def _look(self, step: int, known: _Known, optimizer: Any, once: Once, in_loss: set[int]) -> None:
        assert self._source is not None
        groups = self._source.groups(optimizer)
        mine = set(self._names.values())
        tensors = {id(tensor): tensor for group in groups for tensor in group.params}
        was_mine = {key for key, tensor in tensors.items() if key in once and once[key][0]() is tensor}
        if known.number is None:
            if not was_mine and not mine & tensors.keys() and not self._looks_alike(groups):
                return  # of another model
            known.number = len(self._wiring.optimizers)
            self._wiring.optimizers.append(Optimizer(type(optimizer).__name__, [one.numbers for one in groups]))
        noted = self._wiring.optimizers[known.number]
        if [one.numbers["params"] for one in groups] != [one["params"] for one in noted.groups]:
            noted.groups = [one.numbers for one in groups]
        places: dict[int, list[str]] = {}
        self._groups[known.number] = places
        for number, group in enumerate(groups):
            for tensor in group.params:
                places.setdefault(id(tensor), []).append(f"{known.number}/{number}")
        foreign = {key: tensor for key, tensor in tensors.items() if key not in mine}
        noted.strangers, noted.others = self._described(foreign, once, in_loss)
        self._place(step)

    def _looks_alike(self, groups: list[Group]) -> bool:
        """Whether the tensors of an optimizer have the shapes of this model's: they may be those of a copy."""
        theirs = sorted(tuple(tensor.shape) for group in groups for tensor in group.params)
        mine = sorted(tuple(one.shape) for one in self._wiring.params.values() if one.trainable)
        return len(mine) > 1 and theirs == mine

    def _described(self, foreign: dict[int, Tensor], once: Once, in_loss: set[int]) -> tuple[list[str], list[str]]:
        """What an optimizer holds that no module of the model has: nobody's, and somebody's."""
        assert self._source is not None
        if foreign and (self._owners is None or not foreign.keys() <= self._owners.keys()):
            self._owners = dict.fromkeys(foreign, "") | self._source.owners(foreign)
        strangers: list[str] = []
        others: dict[str, int] = {}
        for key, tensor in foreign.items():
            words = self._source.described_tensor(tensor)
            reference, name = once.get(key, (None, ""))
            if reference is not None and reference() is tensor:  # also if a module that was replaced lives on
                strangers.append(f"{words}, was {name!r}")
            elif owner := (self._owners or {}).get(key):
                others[f"of another module, {owner}"] = others.get(f"of another module, {owner}", 0) + 1
            elif key in in_loss:
                others[f"{words}, on which the loss depends"] = 1
            else:
                strangers.append(words)
        return strangers, [f"{n} {words}" if words[0] == "o" else words for words, n in others.items()]

    def _place(self, step: int) -> None:
        """Notes with each parameter where it is held."""
        for name, key in self._names.items():
            parameter = self._wiring.params[name]
            groups = [place for places in self._groups.values() for place in places.get(key, ())]
            if groups != parameter.groups:
                if not self._first_time and step != self._wiring.optimizers[0].first_step:
                    self._wiring.change(step, "optimizer", name, ", ".join(groups) or "none")
                parameter.groups = groups
        self._first_time = False

    def forget_ended(self) -> None:
        """An optimizer holds nothing once a later one has the same tensors, or it is gone and another took over.

        One that is gone and was the last is what trained the model: the function that made it is over.
        """
        optimizers = self._wiring.optimizers
        for known in self._known:
            if known.number is None or known.number not in self._groups:
                continue
            mine, held = optimizers[known.number], self._groups[known.number]
            later = [
                number
                for number, other in enumerate(optimizers)
                if number in self._groups and (other.first_step or 0) > (mine.last_step or 0)
            ]
            is_gone = known.optimizer() is None
            if any(is_gone or self._groups[number].keys() == held.keys() for number in later):
                del self._groups[known.number]
                self._place(mine.last_step or 0)

    def forget(self) -> None:
        """Lets go of what is known by identity."""
        self._known, self._groups, self._names, self._owners = [], {}, {}, None
