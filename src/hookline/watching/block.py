"""Block: an open or finished `watch`, which follows the steps of a training and gathers what its taps reduce."""

from __future__ import annotations

import sys
from pathlib import Path
from types import TracebackType
from typing import Any

from hookline.audit import Audit
from hookline.backends.quick import Measuring
from hookline.diagnosis.finding import Finding
from hookline.diagnosis.training import Training
from hookline.errors import InvalidArgument, TrainingStopped
from hookline.hooks.entering import Enterable
from hookline.hooks.placing import callers_line
from hookline.hooks.session import opened
from hookline.recording.keeping import facts_of
from hookline.rows import Curve, Row, Series
from hookline.watching.audit import Seen, audited
from hookline.watching.handing import Handing, note_wiring
from hookline.watching.operators import WatchedOps
from hookline.watching.progress import Progress
from hookline.watching.reading import Reading
from hookline.watching.stepping import Stepping
from hookline.watching.taps import FullWatcher, OutputWatcher, QuickWatcher
from hookline.wiring import Wiring


class Watch(Enterable, Stepping, Reading):
    """An open or finished `watch` block; `rows` has what was seen."""

    measuring: Measuring | None = None
    """What its taps share while it is open, where they do plain calls in C."""

    # Reading

    def _rows_in_memory(self, site: str | None, kind: str | None, step: int | None) -> list[Row]:
        if self.is_open:
            self.backend.settled()
        with self._stepping:
            self.finish_step(raises=False)
            return self._table.rows(site, kind, step)

    def _curves_in_memory(self) -> dict[Series, Curve]:
        if self.is_open:
            self.backend.settled()
        with self._stepping:
            self.finish_step(raises=False)
            return self._table.curves()

    def training_so_far(self) -> Training:
        """The training as rules see it, without the step under way."""
        return self._training(self._table.curves())

    def audit(self) -> Audit:
        """For every site and parameter: measured so many times, or never, and why."""
        return self._account() if self._audit is None else self._audit

    def _account(self, error: BaseException | None = None) -> Audit:
        seen = Seen(
            self.backend,
            self._tree,
            self._watchers,
            self._weights,
            self._ops,
            self._recorded,
            error,
            self._left_out(),
        )
        return audited(seen)

    def _left_out(self) -> dict[str, str]:
        """Sites that were chosen at no step so far, and why."""
        return {}

    @property
    def wiring(self) -> Wiring:
        """How the training hangs together, as far as it was seen; empty where a framework does not tell."""
        with self._stepping:
            self.finish_step(raises=False)
            return self._wired.wiring

    @property
    def findings(self) -> list[Finding]:
        """What was found while it ran, with `diagnose=True`, in the order in which it was told."""
        return [] if self._live is None else self._live.findings

    @property
    def path(self) -> Path | None:
        """The folder of the run that it keeps; None where it keeps none."""
        return self._table.path

    def keep(self, recording: Any) -> None:
        """Keeps a Recording in the run of this watch, with its step; `record(..., to=w)` calls it."""
        self._table.keep(recording, self.now)

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
        self.line = callers_line()
        self._ops = None if self._chosen is None else WatchedOps(self, self._chosen)
        self.measuring = self._plain_calls()
        kind = FullWatcher if self._inputs else OutputWatcher if self.measuring is None else QuickWatcher
        self._watchers = [kind(self, target) for target in self._targets]
        # It is left from the last line to the first: the session, what counts, the last step, the sinks.
        self.noted(self._forget)
        self.push(self._close_account)
        self.push(self._close_account)
        self.noted(self._table.close)
        if self._table.has_sinks:
            facts = {"model": type(self._model).__qualname__, **facts_of(self.backend, self._targets)}
            self._table.open(facts if self.config is None else {**facts, "config": self.config})
        self.noted(self._finish)
        self._hear_calls(self)
        self.backend.hear_steps(self, self._model, self._before_step, self._after_step, self._gate)
        self._wired.open(self, lambda: self._recording and self.is_open, lambda: self.now)
        self.backend.hear_numbers(self, self._model, self.numbers)
        if self._wants_moments:
            self.backend.hear_moments(self, self._model, self._hear_moments, self.numbers.wanted)
        self.noted(self.session.close)
        self.clock.set(max(self.now, self._table.first_step))
        self.is_open = True
        if self._live is not None:
            self._live.begin()
        self.entered()
        self._progress = Progress(self._show_progress)
        self.session.open()
        self._end_step(self.now)
        if self._table.revises:
            self._handing = Handing(self)

    def _plain_calls(self) -> Measuring | None:
        """What taps need that do plain calls in C; None where more is wanted than outputs."""
        if self._inputs or self.grads or not self.gathered.is_plain:
            return None
        facts = self, self.clock, self.gathered, self.tensor
        return Measuring(*facts, opened, self.number, self.backward_number)

    def _finish(self) -> None:
        """Ends the last step and takes the taps off; a second time does what the first was kept from."""
        if self._handing is not None:
            self._handing.end()
            self._handing = None
        with self._stepping:
            if self.is_open:
                self.finish_step(raises=False)
            self.is_open = False
            self._end_step(self.now)  # what came after the last optimizer step, validation say
            if self._live is not None:
                self._live.look(self, raises=False)
            if self._table.path is not None:
                account = self._account(sys.exc_info()[1])
                self._table.note({"audit": [[one.site, one.fired, one.why] for one in account]})
                note_wiring(self, at_end=True)
        self._progress.close()

    def _close_account(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        if self._watchers and self._audit is None:
            self._audit = self._account(error)
        self.left()
        return isinstance(error, TrainingStopped)  # what follows the block goes on

    def _forget(self) -> None:
        """Watchers refer to the watch: no cycle is left, nor what belongs to calls that never ended."""
        if self._inputs:
            for watcher in self._watchers:
                watcher.forget_calls_under_way()
        self._watchers, self._ops, self.measuring = [], None, None
        self._wired.forget()
