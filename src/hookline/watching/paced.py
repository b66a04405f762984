"""Paced: a watch with a budget. It records the steps that the budget allows, and sleeps between them.

To hear which step it is, a watch has taps on the model and its parts and listens to optimizers: a tenth of the
time where a model is tiny. So between two recorded steps nothing is left but a count of the optimizer's steps, as
long as one optimizer alone trains the model. Where several do, where steps are told by hand, and where nobody
trains, it stays awake.
"""

from __future__ import annotations

import weakref
from collections import Counter
from collections.abc import Callable, Iterable
from functools import partial, wraps
from typing import Any, Concatenate, ParamSpec, TypeVar
from zlib import crc32

from hookline.backends.gate import Gate
from hookline.backends.undoing import Undoing
from hookline.watching.block import Watch
from hookline.watching.budget import Budget
from hookline.watching.steps import Gathered
from hookline.watching.table import Table
from hookline.watching.taps import SiteWatcher

P = ParamSpec("P")
T = TypeVar("T")

SURE = 3
"""After so many steps with one optimizer each, always the same, it is taken to be the only one."""


def metered(method: Callable[Concatenate[Any, P], T]) -> Callable[Concatenate[Any, P], T]:
    """The method, whose time counts as hookline's own: it is added to the `budget` of its object."""

    @wraps(method)
    def timed(self: Any, /, *args: P.args, **kwargs: P.kwargs) -> T:
        budget: Budget = self.budget
        is_outermost = False
        try:
            is_outermost = budget.enter()
            return method(self, *args, **kwargs)
        finally:
            if is_outermost:
                budget.leave()

    return timed


class MeteredGathered(Gathered):
    """Gathers as others do, and counts the time that it takes."""

    budget: Budget
    add = metered(Gathered.add)

    @property
    def is_plain(self) -> bool:
        """Never: what is done in C is not timed."""
        return False


class PacedWatch(Watch):
    """A Watch whose steps, and sites if need be, are those that `budget` allows."""

    budget: Budget
    gathered: MeteredGathered
    gathering = MeteredGathered

    def __init__(self, limit: float, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.watchers_tell = False  # they are not there at every step
        self._limit = limit
        self._hearing = Undoing()
        self._is_asleep = False
        self._open_account()

    def _open_account(self) -> None:
        table, backend = self._table, self.backend
        self.budget = self.gathered.budget = Budget(
            self._limit,
            sites=len(self._targets),
            rotates=lambda: backend.tells_at_once and not backend.is_compiled(),
            elsewhere=partial(_seconds_elsewhere, table, weakref.ref(self)),
        )
        self._only: tuple[object, int] = (None, 0)  # the optimizer that alone stepped, and at how many steps
        self._stepped = -1
        self._turns: Counter[str] = Counter()  # how often it was the turn of a site
        self._before: set[str] = set()  # numbers of the user's that come before the optimizer steps
        self._has_logged = False

    def _begin(self) -> None:
        self._open_account()
        self._is_asleep = False
        self._gate = Gate(self._count)
        self._begin_metered()

    @metered
    def _begin_metered(self) -> None:
        super()._begin()

    # What is told from outside

    step = metered(Watch.step)
    before_step = metered(Watch.before_step)
    after_step = metered(Watch.after_step)
    _part_begins = metered(Watch._part_begins)
    _forward_begins = metered(Watch._forward_begins)
    _forward_ends = metered(Watch._forward_ends)

    @metered
    def _before_step(self, held: set[int], gradients: Any = None) -> None:
        if self._is_asleep:  # another optimizer of the model; whether this is another step can't be told any more
            with self._stepping:
                self._listen()
        super()._before_step(held, gradients)

    @metered
    def _after_step(self, held: set[int]) -> None:
        super()._after_step(held)
        if self.is_open and not self.clock.is_by_hand and self._gate is not None:
            with self._stepping:
                self._note_optimizer(self._gate)
                if self._taps is None and self._is_only(self._gate):
                    self._end_step(self.now + 1)
                    self._ended_with = self.now - 1
                    if self._taps is None:
                        self._sleep(self._gate)

    # Asleep

    def _note_optimizer(self, gate: Gate) -> None:
        """Follows whether one optimizer alone steps, once a step."""
        known, steps = self._only
        is_second = self.now == self._stepped
        is_same = known is None or known == gate.latest
        self._only = (gate.latest, 0 if is_second or not is_same else steps + 1)
        self._stepped = self.now

    def _is_only(self, gate: Gate) -> bool:
        steps = self._only[1]
        return gate.latest() is not None and (steps >= SURE or (steps > 0 and gate.holds_all()))

    def _hear_calls(self, undoing: Undoing) -> None:
        undoing.noted(self._stop_hearing)
        self._hearing = Undoing()
        super()._hear_calls(self._hearing)

    def _stop_hearing(self) -> None:
        self._hearing.close()

    def _sleep(self, gate: Gate) -> None:
        self._is_asleep = True
        gate.close()
        self._stop_hearing()

    def _listen(self) -> None:
        """Hears of everything again."""
        assert self._gate is not None
        self._is_asleep = False
        self._gate.open()
        self._hearing = Undoing()
        super()._hear_calls(self._hearing)

    def _count(self) -> None:
        """The only optimizer has stepped while nobody listened."""
        with self._stepping:
            step = self.clock.now + 1
            self.clock.set(step)
            if self._has_logged:
                self._keep_logged()
            if self.budget.sleeps_through(step) and self.is_open and self._is_due(step):
                self._wake()  # that is decided: what waking takes changes nothing

    @metered
    def _wake(self) -> None:
        self._listen()
        self._end_step(self.now)
        self._ended_with = self.now - 1

    @metered
    def log(self, /, **numbers: Any) -> None:
        """Keeps numbers of your own with the step under way: `w.log(loss=loss, accuracy=0.9)`.

        Before or after the optimizer's step, at any step. One that hookline knows by the same name is yours.
        """
        # Asleep, it can't be told which of the two it is: a number that came before it when awake does so now.
        with self._stepping:
            if not self._is_asleep:
                if not self.clock.is_due and self._ended_with is None:
                    self._before.update(numbers)
                super().log(**numbers)
                return
            for name, value in numbers.items():
                self.numbers.log(self.now if name in self._before else self.now - 1, {name: value})
            self._has_logged = True

    def _keep_logged(self) -> None:
        """Hands on what was logged at steps that were slept through."""
        self._has_logged = False
        scalars = self.numbers.rows(self.now - 1, self.backend.rank())
        if scalars is not None:
            self._table.add(scalars)

    # Steps and sites

    def _is_due(self, step: int) -> bool:
        is_due = self.budget.allows(step) and super()._is_due(step)
        if is_due:
            self.budget.record(step)
        return is_due

    def _switch(self, step: int) -> None:
        self.budget.lap(step)
        super()._switch(step)

    def _watchers_of(self, step: int) -> list[SiteWatcher]:
        budget = self.budget
        chosen = [one for place, one in enumerate(self._watchers) if budget.chooses(place)]
        names = {one.target.name for one in chosen}
        self._turns.update(names)
        if self._weights is not None:
            self._weights.chosen = None if budget.groups == 1 else _Turn(budget, names, dict(self._modules))
        return chosen

    # What is told

    def _tell_numbers(self) -> None:
        self.numbers.tell("share", self.budget.share)

    def _finish(self) -> None:
        self._table.note({"budget": self.budget.to_json()})
        super()._finish()

    def _forget(self) -> None:
        super()._forget()
        self._gate = None  # it refers to this watch

    def _left_out(self) -> dict[str, str]:
        if self.budget.groups == 1:
            return {}
        return {name: self.budget.turns(self._turns[name]) for name, _ in self._modules}


class _Turn:
    """Tells whether a parameter is of a site whose turn it is; one that is of no site has turns of its own."""

    def __init__(self, budget: Budget, names: set[str], modules: Iterable[str]) -> None:
        self._groups, self._turn = budget.groups, budget.turn
        self._names, self._modules = names, frozenset(modules)

    def __call__(self, name: str) -> bool:
        owner = name.rpartition(".")[0]
        if owner in self._modules:
            return owner in self._names
        return crc32(name.encode()) % self._groups == self._turn


def _seconds_elsewhere(table: Table, watch: weakref.ref[PacedWatch]) -> float:
    """The CPU time of threads that write, and of the one that hands steps over."""
    handing = getattr(watch(), "_handing", None)
    return table.seconds_elsewhere + (0.0 if handing is None else float(handing.seconds))
