"""Stepping: what a watch does at each step: which step it is, what is measured in it, who is told when it ends."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from hookline.audit import Audit
from hookline.backends.gate import Gate
from hookline.backends.nouns import Model, Module, Tensor
from hookline.backends.protocol import COUNTING, Backend, FunctionTap, Label, Needs, Placement, Rank
from hookline.backends.undoing import Undoing
from hookline.diagnosis.training import Training
from hookline.errors import InvalidArgument
from hookline.hooks.ops import Chosen
from hookline.hooks.select import ModuleTree, Target
from hookline.hooks.session import Session, opened
from hookline.reporting import report, warn
from hookline.schedule import Schedule, always
from hookline.watching.budget import Budget
from hookline.watching.clock import StepClock
from hookline.watching.handing import Handing
from hookline.watching.live import Live
from hookline.watching.numbers import StepNumbers, rows_of_step
from hookline.watching.operators import WatchedOps
from hookline.watching.origin import OriginSearch
from hookline.watching.progress import Progress
from hookline.watching.steps import Gathered, RowSpec
from hookline.watching.table import Table
from hookline.watching.taps import SiteWatcher
from hookline.watching.weights import Weights, parameters_of
from hookline.watching.wiring import WiringGatherer

PER_MODULE = 6
"""Rows of parameters that a module is expected to have: three for each, and most have two."""


class Stepping(Undoing):
    """The steps of a training that is watched; `Watch` is the block around them."""

    budget: Budget | None = None
    """What watching took and may take, where a budget was given (`watching/paced.py`)."""
    gathering = Gathered
    _gate: Gate | None = None

    def __init__(
        self,
        backend: Backend,
        model: Model,
        tree: ModuleTree,
        targets: list[Target],
        schedule: Schedule,
        table: Table,
        wanted: RowSpec,
        *,
        inputs: bool,
        grads: bool,
        ops: Chosen | None,
        params: bool | Callable[[], dict[str, Any]],
        moments: bool,
        scaler: Any,
        progress: bool | None,
        live: Live | None = None,
        config: dict[str, Any] | None = None,
    ) -> None:
        super().__init__()
        self.backend = backend
        self.session = Session()
        self.grads = grads
        self.is_open = False
        self.clock = StepClock()
        expected = len(targets) * ((1 + inputs) * (1 + grads) + PER_MODULE * bool(params))
        self.gathered = self.gathering(wanted, expected)
        self.number = self.session.number
        self.tensor, self.backward_number = backend.tensor, backend.backward_number
        self.needs = Needs(inputs=False, replaces=False, grads=grads, statistics=self.gathered.statistics)
        self.forward = 0
        """The number of the forward under way, by which sites know that their calls are counted from 0 again."""
        self.last_mode = "train"
        """The mode of the forward under way, or of the last one."""
        self.config = config
        """The settings that were given, as JSON has them."""
        self.numbers = StepNumbers(backend, self.clock)
        self._ended_with: int | None = None  # the step that ended by itself, while nothing of the next has begun
        self._model, self._tree, self._targets = model, tree, targets
        self._schedule, self._table = schedule, table
        self.watchers_tell = schedule is always and ops is None and backend.tells_at_once
        """Whether the watcher of a part tells that the part is called, if the model is not: it is there at every
        step, and told before anything else of the step."""
        self._inputs, self._scaler, self._show_progress = inputs, scaler, progress
        self.is_scaled = scaler is not None
        """Whether gradients have the factor of a GradScaler."""
        self._progress = Progress(wanted=False)
        named = params if callable(params) else partial(parameters_of, backend, targets)
        self._weights = Weights(backend, named, self.gathered) if params else None
        self._wants_moments = moments
        self._wired = WiringGatherer(backend, model, dict(self._modules), partial(_line_of, weakref.ref(self)))
        self._taps: Undoing | None = None
        self._watchers: list[SiteWatcher] = []
        self._chosen = ops
        self._ops: WatchedOps | None = None
        self.line = ""
        """Where the block was entered."""
        self._scale: float | None = None
        self._recorded = False  # any step was one to be recorded
        self._audit: Audit | None = None  # of a block that was left
        self._recording = False  # the step under way is one that is recorded
        self._handing: Handing | None = None
        self._live = live
        self._origin: OriginSearch | None = None
        if live is not None:
            self.search_origins()
        self._stepping = threading.RLock()  # any thread that calls the model may end a step

    @property
    def _modules(self) -> list[tuple[str, str]]:
        return [(target.name, type(target.module).__name__) for target in self._targets]

    @property
    def now(self) -> int:
        """The number of the step under way."""
        return self.clock.now

    @property
    def mode(self) -> str:
        """Whether the forward under way is one of training ("train") or not ("eval")."""
        if not self.clock.depths:  # a part is called without the model, as Lightning's training_step does
            self.last_mode = "train" if self.backend.is_training(self._model) else "eval"
        return self.last_mode

    # Steps, by hand and as a trainer tells them that steps or calls its model in a way of its own

    def step(self, number: int) -> None:
        """Ends the step under way and sets the number of the next one by hand."""
        self.backend.settled()
        self._end_step(number)

    def steps_by_hand(self) -> None:
        """From now on steps are what `before_step` and `after_step` tell, and no torch optimizer is heard."""
        self.clock.take_over()

    def before_step(self, gradients: Mapping[int, Any] | None = None) -> None:
        """The optimizer is about to step; `gradients` by the id of their parameters, if not in `.grad`."""
        if self._recording:
            self._wired.before_step(self.now, gradients)
        if self._recording and self._weights is not None:
            self._guarded(partial(self._weights.before_step, None, gradients))
        self._search_origin()

    def after_step(self) -> None:
        """The optimizer has stepped: the step ends and the next one begins."""
        if self._recording and self._weights is not None:
            self._guarded(self._weights.after_step)
        self._end_step(self.now + 1)
        self._ended_with = self.now - 1

    def log(self, **numbers: Any) -> None:
        """Keeps numbers of your own with the step under way: `w.log(loss=loss, accuracy=0.9)`.

        Before or after the optimizer's step, at any step. One that hookline knows by the same name is yours.
        """
        if not self.is_open:
            raise InvalidArgument("log: this watch is not open; call it within the block, or after start().")
        with self._stepping:
            self.numbers.log(self.now if self._ended_with is None else self._ended_with, numbers)

    def search_origins(self) -> None:
        """From now on, where NaN was born is searched for: a copy of the model makes the call again.

        That happens a few times at most. Code of the model that has effects outside of it has them once more then.
        """
        self._origin = OriginSearch(self.backend, self._model, self._wired.wiring)

    def new_forward(self) -> None:
        """Another forward begins: calls are counted from 0 again. Needed where the model itself is not called."""
        self.clock.forget_forward()
        self.forward += 1
        self._ended_with = None

    def _hear_calls(self, undoing: Undoing) -> None:
        """Puts on the taps that tell which step it is."""
        self.backend.attach(undoing, self._counting(Label("watch", "call count", "", self.line)))

    def _counting(self, label: Label) -> list[Placement]:
        """The taps that are there on every step: on the model, and on parts in case only these are called."""
        stepping = COUNTING._replace(statistics=self.gathered.statistics)
        begin = FunctionTap(self._forward_begins, label, after=False, needs=stepping)
        end = FunctionTap(self._forward_ends, label, kwargs=False, rank=Rank.STOP, needs=stepping)
        placements = [Placement(self._model, begin), Placement(self._model, end)]
        for part in self._parts_that_tell_nothing():
            tap = FunctionTap(self._part_begins, label, after=False, kwargs=False, needs=COUNTING)
            tap.may_miss = True  # where the model runs compiled, its own call tells
            placements.append(Placement(part, tap))
        return placements

    def _parts_that_tell_nothing(self) -> list[Module]:
        """The parts of the model that may be called without anybody's being told."""
        parts = {id(part): part for part in self.backend.children(self._model)}
        if self.watchers_tell:
            for target in self._targets:
                parts.pop(id(target.module), None)
        return list(parts.values())

    # What happens in a step

    def unscaled(self, grad: Tensor) -> Any:
        """A gradient without the factor of the GradScaler."""
        if self._scaler is None:
            return grad
        if self._scale is None:
            self._scale = float(self._scaler.get_scale())  # once a step: it waits for the device
        return grad / self._scale

    def finish_step(self, *, raises: bool = True) -> None:
        """Ends the step of an optimizer that has stepped, if there is one."""
        with self._stepping:
            if self.clock.is_due:
                self._end_step(self.now + 1, raises)
            if raises and self._live is not None:
                self._live.raise_held()

    def _is_mine(self) -> bool:
        """Whether the call under way is one of this block, and no repetition of an earlier one."""
        mine = opened()  # also when the block is being left: compiled code tells of its last calls then
        return (not mine or self.session.number in mine) and not self.backend.in_recompute(True)

    def _part_begins(self, module: Module, args: Any) -> None:
        if self.clock.is_due and self._is_mine():
            self.finish_step()

    def _forward_begins(self, module: Module, args: Any, kwargs: Any) -> None:
        if not self._is_mine():
            return
        if self.clock.is_new_forward(partial(self.backend.calls_under_way, module)):
            self.finish_step()
            self.new_forward()
            self.last_mode = self.mode
            if self.last_mode == "eval":
                self._wired.begin_eval()
            self.numbers.batch((args, kwargs), training=self.last_mode == "train")
            if self._origin is not None and self._recording:
                self._origin.begin(args, kwargs)
        self.clock.begin_forward()

    def _forward_ends(self, module: Module, args: Any, output: Any) -> None:
        if not self._is_mine():
            return
        trains = partial(self.backend.needs_gradient, output)
        self._wired.end_eval()
        if self.clock.end_forward(partial(self.backend.calls_under_way, module), trains):
            with self._stepping:
                if self.is_open:
                    self._end_step(self.now + 1)  # nobody trains: each call of the model is a step
                    self._ended_with = self.now - 1

    def _before_step(self, held: set[int], gradients: Mapping[int, Any] | None = None) -> None:
        if self.clock.is_by_hand or not self.is_open:
            return
        if self.clock.optimizer_steps(held):
            self.finish_step()
        if self._recording:
            self._wired.before_step(self.now, gradients)
        if self._recording and self._weights is not None:
            self._guarded(partial(self._take_weights, self._weights, held, gradients))
        self._search_origin()

    def _take_weights(self, weights: Weights, held: set[int], gradients: Mapping[int, Any] | None) -> None:
        weights.before_step(held, gradients)
        self.numbers.norms = weights.norms()

    def _after_step(self, held: set[int]) -> None:
        if self.clock.is_by_hand or not self.is_open:
            return
        if self._recording and self._weights is not None:
            self._guarded(self._weights.after_step)
        # Further optimizers may step as well before the model runs again: still the same step. The taps
        # are switched here all the same, since a pre-hook of the next call would come too late for some.
        with self._stepping:
            self.clock.optimizer_stepped()
            self._switch(self.now + 1)

    def _hear_moments(self, moments: Mapping[int, Mapping[str, Tensor]]) -> None:
        """An optimizer has stepped, and keeps these."""
        if self._weights is not None and self._recording:
            self._guarded(partial(self._weights.add_moments, moments))

    def _search_origin(self) -> None:
        """Finds out where NaN was born, while parameters are still those of the step."""
        if self._origin is not None and self._recording and self.gathered.is_nonfinite():
            self._origin.search()

    def _guarded(self, work: Callable[[], None]) -> None:
        try:
            work()
        except Exception as error:  # training goes on, whatever it is
            assert self._weights is not None
            self._weights.stopped = f"watching parameters failed and stops: {type(error).__name__}: {error}"
            warn(self._weights.stopped, stacklevel=2)

    def _end_step(self, next_step: int, raises: bool = True) -> None:
        with self._stepping:
            if self.gathered:
                self._tell_numbers()
                self._search_origin()  # of a step that no optimizer ended
            if self._origin is not None:
                self._origin.forget()
            rows, scalars = rows_of_step(self.gathered, self.numbers, self.now, self.backend.rank())
            if rows is not None or self._wired.has_heard:
                self._wired.end_step(self.now, rows, self._fired())
            if parts := [part for part in (rows, scalars) if part is not None]:
                self._table.add(*parts)
                self._progress.tell(self.now, sum(map(len, parts)))
            self.clock.set(next_step)
            self._scale = None
            self.new_forward()
            self._switch(next_step)
            self._recording = self.numbers.are_kept = self._taps is not None
            if self._live is not None and self.is_open:
                self._live.ended(self, rows, raises)

    def training_so_far(self) -> Training:
        """The training as rules see it, without the step under way."""
        raise NotImplementedError

    def _fired(self) -> list[tuple[str, int]]:
        return [(one.target.name, one.fired) for one in self._watchers]

    def _tell_numbers(self) -> None:
        """Adds numbers of a step with rows that is about to end."""

    def _is_due(self, step: int) -> bool:
        try:
            return bool(self._schedule(step))
        except Exception as error:  # training goes on, whatever it is
            schedule, self._schedule = self._schedule, _never
            report("watch(every=...)", schedule, error, "no further step is recorded")
            return False

    def _switch(self, step: int) -> None:
        """Puts the taps on for a step that is recorded and takes them off for one that is not."""
        wanted = self.is_open and self._is_due(step)
        self._recorded |= wanted
        self._wired.switch(step, wanted)
        if wanted and self._taps is None:
            watchers = self._watchers_of(step)
            placements = [placement for watcher in watchers for placement in watcher.placements()]
            self._taps = Undoing()
            self.backend.attach(self._taps, placements)
            if self._ops is not None:
                targets = {one.target.name: one.target.module for one in watchers}
                label = Label("watch", "watching of operators", "", self.line)
                self.backend.hook_operators(self._taps, self._model, targets, self._ops, label)
        elif not wanted and self._taps is not None:
            self._taps.close()
            self._taps = None

    def _watchers_of(self, step: int) -> list[SiteWatcher]:
        """The sites that are measured on a step that is recorded."""
        return self._watchers


def _line_of(watch: weakref.ref[Stepping]) -> str:
    """Where a watch was entered. Nothing that it has refers to it, so that it goes when nobody has it."""
    return getattr(watch(), "line", "")


def _never(step: int) -> bool:
    return False
