"""Block: an open or finished `watch`, which follows the steps of a training and gathers what its taps reduce."""

from __future__ import annotations

import sys
import threading
import warnings
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any

from hookline.audit import Audit
from hookline.backends.nouns import Model, Module, Tensor
from hookline.backends.protocol import COUNTING, Backend, FunctionTap, Label, Needs, Placement, Rank
from hookline.backends.undoing import Undoing
from hookline.errors import InvalidArgument
from hookline.hooks.entering import Enterable
from hookline.hooks.ops import Chosen
from hookline.hooks.placing import callers_line
from hookline.hooks.select import ModuleTree, Target
from hookline.hooks.session import Session, opened
from hookline.recording.keeping import facts_of
from hookline.reporting import report
from hookline.rows import Curve, Row, Series
from hookline.schedule import Schedule, always
from hookline.watching.audit import Seen, audited
from hookline.watching.clock import StepClock
from hookline.watching.handing import Handing
from hookline.watching.operators import WatchedOps
from hookline.watching.progress import Progress
from hookline.watching.reading import Reading
from hookline.watching.steps import Gathered, RowSpec
from hookline.watching.table import Table
from hookline.watching.taps import FullWatcher, OutputWatcher, SiteWatcher
from hookline.watching.weights import Weights, parameters_of

PER_MODULE = 6
"""Rows of parameters that a module is expected to have: three for each, and most have two."""


class Watch(Reading, Enterable, Undoing):
    """An open or finished `watch` block; `rows` has what was seen."""

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
        scaler: Any,
        progress: bool | None,
    ) -> None:
        super().__init__()
        self.backend = backend
        self.session = Session()
        self.grads = grads
        self.is_open = False
        self.clock = StepClock()
        expected = len(targets) * ((1 + inputs) * (1 + grads) + PER_MODULE * bool(params))
        self.gathered = Gathered(wanted, backend.version, expected)
        self.number = self.session.number
        self.tensor, self.backward_number = backend.tensor, backend.backward_number
        self.needs = Needs(inputs=False, replaces=False, grads=grads, statistics=self.gathered.statistics)
        self.forward = 0
        """The number of the forward under way, by which sites know that their calls are counted from 0 again."""
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
        self._weights = Weights(backend, named, self.gathered.add) if params else None
        self._taps: Undoing | None = None
        self._watchers: list[SiteWatcher] = []
        self._chosen = ops
        self._ops: WatchedOps | None = None
        self.line = ""
        """Where the block was entered."""
        self._scale: float | None = None
        self._mode = "train"
        self._recorded = False  # any step was one to be recorded
        self._audit: Audit | None = None  # of a block that was left
        self._recording = False  # the step under way is one that is recorded
        self._handing: Handing | None = None
        self._stepping = threading.RLock()  # any thread that calls the model may end a step

    # Reading

    def _rows_in_memory(self, site: str | None, kind: str | None, step: int | None) -> list[Row]:
        if self.is_open:
            self.backend.settled()
        with self._stepping:
            self.finish_step()
            return self._table.rows(site, kind, step)

    def _curves_in_memory(self) -> dict[Series, Curve]:
        if self.is_open:
            self.backend.settled()
        with self._stepping:
            self.finish_step()
            return self._table.curves()

    @property
    def _modules(self) -> list[str]:
        return [target.name for target in self._targets]

    def audit(self) -> Audit:
        """For every site and parameter: measured so many times, or never, and why."""
        return self._account() if self._audit is None else self._audit

    def _account(self, error: BaseException | None = None) -> Audit:
        seen = Seen(self.backend, self._tree, self._watchers, self._weights, self._ops, self._recorded, error)
        return audited(seen)

    @property
    def path(self) -> Path | None:
        """The folder of the run that it keeps; None where it keeps none."""
        return self._table.path

    def keep(self, recording: Any) -> None:
        """Keeps a Recording in the run of this watch, with its step; `record(..., to=w)` calls it."""
        self._table.keep(recording, self.now)

    @property
    def now(self) -> int:
        """The number of the step under way."""
        return self.clock.now

    @property
    def mode(self) -> str:
        """Whether the forward under way is one of training ("train") or not ("eval")."""
        if not self.clock.depths:  # a part is called without the model, as Lightning's training_step does
            self._mode = "train" if self.backend.is_training(self._model) else "eval"
        return self._mode

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
        if self._recording and self._weights is not None:
            self._guarded(partial(self._weights.before_step, None, gradients))

    def after_step(self) -> None:
        """The optimizer has stepped: the step ends and the next one begins."""
        if self._recording and self._weights is not None:
            self._guarded(partial(self._weights.after_step, self.gathered))
        self._end_step(self.now + 1)

    def new_forward(self) -> None:
        """Another forward begins: calls are counted from 0 again. Needed where the model itself is not called."""
        self.clock.forget_forward()
        self.forward += 1

    # The block

    def __enter__(self) -> Watch:
        if self.is_open:
            raise InvalidArgument("this watch block is open already; call watch(...) again.")
        self.is_used()
        try:
            self._begin()
            return self
        except BaseException:
            self.close()
            raise

    def _begin(self) -> None:
        self._audit = None
        self.line = line = callers_line()
        self._ops = None if self._chosen is None else WatchedOps(self, self._chosen)
        kind = FullWatcher if self._inputs else OutputWatcher
        self._watchers = [kind(self, target) for target in self._targets]
        # It is left from the last line to the first: the session, what counts, the last step, the sinks.
        self.noted(self._forget)
        self.push(self._close_account)
        self.push(self._close_account)
        self.noted(self._table.close)
        if self._table.has_sinks:
            self._table.open({"model": type(self._model).__qualname__, **facts_of(self.backend, self._targets)})
        self.noted(self._finish)
        self.backend.attach(self, self._counting(Label("watch", "call count", "", line)))
        self.backend.hear_steps(self, self._model, self._before_step, self._after_step)
        self.noted(self.session.close)
        self.clock.set(max(self.now, self._table.first_step))
        self.is_open = True
        self.entered()
        self._progress = Progress(self._show_progress)
        self.session.open()
        self._end_step(self.now)
        if self._table.revises:
            self._handing = Handing(self)

    def _counting(self, label: Label) -> list[Placement]:
        """The taps that are there on every step: on the model, and on parts in case only these are called."""
        stepping = COUNTING._replace(statistics=self.gathered.statistics)
        begin = FunctionTap(self._forward_begins, label, after=False, kwargs=False, needs=stepping)
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

    def _finish(self) -> None:
        """Ends the last step and takes the taps off; a second time does what the first was kept from."""
        if self._handing is not None:
            self._handing.end()
            self._handing = None
        with self._stepping:
            if self.is_open:
                self.finish_step()
            self.is_open = False
            self._end_step(self.now)  # what came after the last optimizer step, validation say
            if self._table.path is not None:
                account = self._account(sys.exc_info()[1])
                self._table.note({"audit": [[one.site, one.fired, one.why] for one in account]})
        self._progress.close()

    def _close_account(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._watchers and self._audit is None:
            self._audit = self._account(error)
        self.left()

    def _forget(self) -> None:
        """Watchers refer to the watch: no cycle is left, nor what belongs to calls that never ended."""
        if self._inputs:
            for watcher in self._watchers:
                watcher.forget_calls_under_way()
        self._watchers, self._ops = [], None

    # What happens in a step

    def unscaled(self, grad: Tensor) -> Any:
        """A gradient without the factor of the GradScaler."""
        if self._scaler is None:
            return grad
        if self._scale is None:
            self._scale = float(self._scaler.get_scale())  # once a step: it waits for the device
        return grad / self._scale

    def finish_step(self) -> None:
        """Ends the step of an optimizer that has stepped, if there is one."""
        with self._stepping:
            if self.clock.is_due:
                self._end_step(self.now + 1)

    def _is_mine(self) -> bool:
        """Whether the call under way is one of this block, and no repetition of an earlier one."""
        mine = opened()  # also when the block is being left: compiled code tells of its last calls then
        return (not mine or self.session.number in mine) and not self.backend.in_recompute(True)

    def _part_begins(self, module: Module, args: Any) -> None:
        if self.clock.is_due and self._is_mine():
            self.finish_step()

    def _forward_begins(self, module: Module, args: Any) -> None:
        if not self._is_mine():
            return
        if self.clock.is_new_forward(partial(self.backend.calls_under_way, module)):
            self.finish_step()
            self.new_forward()
            self._mode = self.mode
        self.clock.begin_forward()

    def _forward_ends(self, module: Module, args: Any, output: Any) -> None:
        if not self._is_mine():
            return
        trains = partial(self.backend.needs_gradient, output)
        if self.clock.end_forward(partial(self.backend.calls_under_way, module), trains):
            with self._stepping:
                if self.is_open:
                    self._end_step(self.now + 1)  # nobody trains: each call of the model is a step

    def _before_step(self, held: set[int], gradients: Mapping[int, Any] | None = None) -> None:
        if self.clock.is_by_hand or not self.is_open:
            return
        self.clock.optimizer_steps()
        if self._recording and self._weights is not None:
            self._guarded(partial(self._weights.before_step, held, gradients))

    def _after_step(self, held: set[int]) -> None:
        if self.clock.is_by_hand or not self.is_open:
            return
        if self._recording and self._weights is not None:
            self._guarded(partial(self._weights.after_step, self.gathered))
        # Further optimizers may step as well before the model runs again: still the same step. The taps
        # are switched here all the same, since a pre-hook of the next call would come too late for some.
        with self._stepping:
            self.clock.optimizer_stepped()
            self._switch(self.now + 1)

    def _guarded(self, work: Callable[[], None]) -> None:
        try:
            work()
        except Exception as error:  # training goes on, whatever it is
            assert self._weights is not None
            self._weights.stopped = f"watching parameters failed and stops: {type(error).__name__}: {error}"
            warnings.warn(self._weights.stopped, stacklevel=2)

    def _end_step(self, next_step: int) -> None:
        with self._stepping:
            if self.gathered:
                rows = self.gathered.rows(self.now, self.backend.rank())
                self._table.add(rows)
                self._progress.tell(self.now, len(rows))
            self.clock.set(next_step)
            self._scale = None
            self.new_forward()
            self._switch(next_step)
            self._recording = self._taps is not None

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
        if wanted and self._taps is None:
            placements = [placement for watcher in self._watchers for placement in watcher.placements()]
            self._taps = Undoing()
            self.backend.attach(self._taps, placements)
            if self._ops is not None:
                targets = {target.name: target.module for target in self._targets}
                label = Label("watch", "watching of operators", "", self.line)
                self.backend.hook_operators(self._taps, self._model, targets, self._ops, label)
        elif not wanted and self._taps is not None:
            self._taps.close()
            self._taps = None


def _never(step: int) -> bool:
    return False
