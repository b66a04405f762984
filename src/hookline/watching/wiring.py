"""Wiring gathered: what a watch notes of how the parts of its training hang together.

It is told when a step begins and ends, before optimizers step, and before a backward. At steps that are not
recorded nothing is looked at. What fails here ends the gathering, is told once, and touches no training.
"""

from __future__ import annotations

import threading
import time
import weakref
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any

from hookline.backends.nouns import Tensor
from hookline.backends.protocol import Backend
from hookline.backends.undoing import Undoing
from hookline.backends.wired import WiringSource
from hookline.reporting import warn
from hookline.rows import Rows
from hookline.watching.holders import Holders
from hookline.watching.looking import Looking
from hookline.watching.spreading import Spreading
from hookline.wiring import Loss, Parameter, Wiring

NOTE_SECONDS = 3.0
"""So long after a note another one may be written, if there is something new."""
COUNTS_SECONDS = 20.0
"""The same where nothing is new but counts."""
MOST_LOSSES = 50
MOST_REPLACED = 3
"""So many lines with a backward are noted, and so often that a parameter is another: with some, at every step."""


class WiringGatherer:
    """Fills a Wiring while a training goes on; `wiring` is empty where the backend tells of none."""

    def __init__(self, backend: Backend, model: Any, targets: Iterable[str], line: Callable[[], str]) -> None:
        self.wiring = Wiring()
        self._backend = backend
        self._counted = set(targets)
        self._source: WiringSource | None = backend.wiring_source(model)
        self._fails = False
        self._stamp: object = None
        self._modules: dict[str, Any] = {}
        self._params: dict[str, Tensor] = {}
        self._once: dict[int, tuple[Callable[[], Any], str]] = {}  # what parameters were before, and their names
        self._modes: list[bool] | None = None
        self._trained_in: dict[str, bool] = {}  # the mode in which a module was trained last
        self._fired: dict[str, int] = {}
        self._trainable: dict[str, bool] = {}
        self._seen_trainable: tuple[int, list[bool]] | None = None
        self._with_grad: set[str] = set()
        self._stepped = self._looked_up = False
        self._outside: dict[str, Tensor] = {}  # parameters that the model uses and does not have
        self._edition = 0  # of the parameters
        self._replaced: dict[str, int] = {}
        self._lines: dict[str, Loss] = {}
        self.holders = Holders(self.wiring, self._source)
        self.looking = Looking(self.wiring, self._source, backend, line)
        self.spreading = Spreading(self.wiring, self._source, backend, line)
        self._alone = threading.RLock()  # a backward may begin in one thread while a step ends in another
        self._news, self._noted_at = 0, float("-inf")
        self._counts = 0

    def open(self, undoing: Undoing, is_recorded: Callable[[], bool], now: Callable[[], int]) -> None:
        """Listens to optimizers and losses as long as the watch is open."""
        if self._source is None:
            return
        self._fails = False
        undoing.noted(self._close)
        hear_step = partial(self._heard, now, self._optimizer)
        hear_loss = partial(self._heard, now, self._loss)
        self._source.hear(undoing, hear_step, hear_loss, is_recorded)
        self._safely(self._describe, now())

    def _close(self) -> None:
        with self._alone:  # else another thread may just be placing what is to be taken off
            self.looking.close()
            self.spreading.close()

    def _heard(self, now: Callable[[], int], work: Any, *told: Any) -> None:
        self._safely(work, now(), *told)

    def _safely(self, work: Callable[..., None], *args: Any) -> None:
        if self._fails or self._source is None:
            return
        try:
            with self._alone:
                work(*args)
        except Exception as error:  # training goes on, whatever it is
            self._fails = True
            self._close()
            text = f"watching how the training is wired failed and stops: {type(error).__name__}: {error}"
            warn(text, stacklevel=3)

    # What a watch tells

    def switch(self, step: int, wanted: bool) -> None:
        """The next step is one that is recorded, or not."""
        self._safely(self.looking.switch, wanted, self._modules, self._safely)
        self._safely(self.spreading.switch, step, wanted, self._modules, self._safely)

    def before_step(self, step: int, gradients: Mapping[int, Any] | None) -> None:
        """An optimizer is about to step, with these gradients or those of the parameters."""
        self._safely(self._before_step, step, gradients)

    def begin_eval(self) -> None:
        """A forward in eval mode begins."""
        self._safely(self.looking.begin_eval, self._modules)

    def end_eval(self) -> None:
        """It has ended."""
        self._safely(self.looking.end_eval)

    @property
    def has_heard(self) -> bool:
        """Whether a backward of this step was heard."""
        return self._looked_up

    def end_step(self, step: int, rows: Rows | None, fired: Iterable[tuple[str, int]]) -> None:
        """A recorded step is over; `fired` tells of each module how often it was called so far."""
        self._safely(self._end_step, step, rows, fired)

    # The tree

    def _describe(self, step: int) -> None:
        """Notes modules and parameters, and what of them is another than before."""
        source = self._source
        assert source is not None
        stamp = source.stamp()
        if stamp == self._stamp:
            return
        wiring, self._modules = self.wiring, source.modules()
        for name, module in self._modules.items():
            known = wiring.modules.get(name)
            new = source.described(module)
            new.counted = name in self._counted
            if known is None:
                wiring.modules[name] = new
            elif not known.calls:
                known.type, known.settings = new.type, new.settings  # a lazy one has another type now
        self._modes = None
        before, self._params = self._params, source.parameters() | self._outside
        self._edition += 1
        for name, tensor in self._params.items():
            old = before.get(name)
            if old is None or old is not tensor:
                self._note_parameter(step, name, tensor, old)
        self._once |= {id(one): (_reference(one), name) for name, one in self._params.items()}
        self._note_shared(step)
        self._stamp = source.stamp()
        self._news += 1

    def _note_parameter(self, step: int, name: str, tensor: Tensor, old: Tensor | None) -> None:
        assert self._source is not None
        if old is not None:
            self._replaced[name] = times = self._replaced.get(name, 0) + 1
            if times <= MOST_REPLACED:
                self.wiring.change(step, "replaced", name, self._source.described_tensor(tensor))
        new = self._source.described_parameter(tensor, self._owner(name))
        known = self.wiring.params.setdefault(name, new)
        known.shape, known.dtype = new.shape, new.dtype
        self._trainable.setdefault(name, new.trainable)

    def _owner(self, name: str) -> str:
        path = name.rpartition(".")[0]
        while path and path not in self._modules:
            path = path.rpartition(".")[0]
        return path

    def _note_shared(self, step: int) -> None:
        """Notes which names share memory, and which do no longer."""
        assert self._source is not None
        places: dict[str, tuple[int, int, int]] = {}
        by_memory: dict[int, list[str]] = {}
        for name, tensor in self._params.items():
            if (place := self._source.memory(tensor)) is not None:
                places[name] = place
                by_memory.setdefault(place[0], []).append(name)
        params = self.wiring.params
        for name in self._params:
            known, mine, shared = params[name], places.get(name), []
            if mine is not None and len(found := by_memory[mine[0]]) > 1:
                others = (one for one in found if one != name)
                shared = [one for one in others if places[one][1] < mine[2] and mine[1] < places[one][2]]
            if lost := [one for one in known.shares_with if one not in shared]:
                self.wiring.change(step, "tied", name, f"no longer shares memory with {', '.join(lost)}")
            known.shares_with = shared

    # A step

    def _optimizer(self, step: int, optimizer: Any) -> None:
        self._news += self.holders.note(
            step, optimizer, self._params, self._edition, self._once, self.looking.leaves
        )
        self._stepped = self._stepped or self.holders.is_known

    def _before_step(self, step: int, gradients: Mapping[int, Any] | None) -> None:
        self._stepped = True
        assert self._source is not None
        has = self._source.has_gradient
        for name, tensor in self._params.items():
            if has(tensor) if gradients is None else gradients.get(id(tensor)) is not None:
                self._with_grad.add(name)

    def _loss(self, step: int, tensors: tuple[Tensor, ...], line: str) -> None:
        self._describe(step)
        known = self._lines.get(line)
        if known is None and len(self._lines) < MOST_LOSSES:
            shape = list(tensors[0].shape) if tensors else []
            known = self._lines[line] = Loss(line, shape, step)
            self.wiring.losses.append(known)
            self._news += 1
        if known is not None:
            known.calls += 1
        self._note_modes(step)
        self._note_trainable(step)
        if outside := self.looking.loss(tensors, self._params):
            self._params |= outside
            self._trainable |= {name: self.wiring.params[name].trainable for name in outside}
            self._outside |= outside
            self._edition += 1
        self._looked_up = True

    def _note_modes(self, step: int) -> None:
        """Notes the modes in which modules are trained."""
        assert self._source is not None
        modes = self._source.modes(self._modules.values())
        before, self._modes = self._modes, modes
        if modes == before:
            return
        for name, mode in zip(self._modules, modes, strict=True):
            self._note_mode(step, name, mode)

    def _note_mode(self, step: int, name: str, mode: bool) -> None:
        module = self.wiring.modules[name]
        if name not in self._trained_in:
            module.training = mode
        elif self._trained_in[name] != mode:
            self.wiring.change(step, "mode", name, "train" if mode else "eval")
            self._news += 1
        self._trained_in[name] = mode

    def _end_step(self, step: int, rows: Rows | None, fired: Iterable[tuple[str, int]]) -> None:
        if not self._looked_up:  # no backward was heard; what is changed now may belong to the next step
            self._describe(step)
            self._note_trainable(step)
        self._looked_up = False
        self._counts += 1
        for name, count in fired:
            if count != self._fired.get(name, 0) and (module := self.wiring.modules.get(name)) is not None:
                self._fired[name] = module.calls = count
                module.last_call = step
                if module.first_call is None:
                    module.first_call = step
                    self._news += 1
        if self._stepped:
            self._note_gradients(step, rows)
            self.holders.forget_ended()
        if self.looking.finish(step, self._modules, self._params, self._with_grad if self._stepped else None):
            self._news += 1
        self._news += self.spreading.finish(step)
        self._with_grad, self._stepped = set(), False

    def _note_trainable(self, step: int) -> None:
        assert self._source is not None
        found = self._source.trainable(self._params.values())
        if (self._edition, found) == self._seen_trainable:
            return
        self._seen_trainable = self._edition, found
        for name, now in zip(self._params, found, strict=True):
            if now != self._trainable[name]:
                self._trainable[name] = now
                self.wiring.change(step, "trainable", name, now)
                self._news += 1

    def _note_gradients(self, step: int, rows: Rows | None) -> None:
        """Counts gradients that were there; which of them are zero all over, the rows of the step tell."""
        zero = set() if rows is None else _zero_gradients(rows)
        by_id = {id(self._params[name]): name for name in zero if name in self._params}
        params, looking = self.wiring.params, self.looking
        without: set[str] = set()
        for name, tensor in self._params.items():
            one: Parameter = params[name]
            one.steps += 1
            if name not in self._with_grad:
                without.add(name)
                continue
            one.grads += 1
            one.last_grad = step
            if one.first_grad is None:
                one.first_grad = step
            if id(tensor) in by_id:
                one.zero_grads += 1
            elif one.in_loss is False:  # a branch that is taken at some steps
                one.in_loss, one.cut, one.cut_line = True, "", ""
        looking.gradients(without)

    # Keeping

    def news(self, *, at_once: bool = False) -> dict[str, Any] | None:
        """The wiring as JSON, if there is something new to be kept and the last time is long enough ago."""
        if self._source is None or not (self._counts or at_once):
            return None
        wait = NOTE_SECONDS if self._news else COUNTS_SECONDS if self._counts else float("inf")
        if not at_once and time.monotonic() - self._noted_at < wait:
            return None
        with self._alone:
            self._news = self._counts = 0
            self._noted_at = time.monotonic()
            return self.wiring.to_json()

    def forked(self) -> None:
        """In a forked child, which has its parent's locks and not the threads that hold them."""
        self._alone = threading.RLock()

    def forget(self) -> None:
        """Lets go of all that is no number: modules, parameters, optimizers."""
        self._modules, self._params, self._once, self._stamp = {}, {}, {}, None
        self.holders.forget()
        self._close()


def _reference(tensor: Tensor) -> Callable[[], Any]:
    try:
        return weakref.ref(tensor)
    except TypeError:
        return lambda: None


def _zero_gradients(rows: Rows) -> set[str]:
    """The parameters whose gradient of this step is zero all over."""
    places = [place for place, one in enumerate(rows.series) if one[1] == "param_grad"]
    if not places:
        return set()
    zeros, counts = rows.column("zeros"), rows.column("count")
    return {rows.series[place][0] for place in places if zeros[place] == counts[place] > 0}
