"""Recorder: the block of a `record`, with a tap for each site.

Upstream: record. A backend gives taps and gradients, a Store copies. Downstream: Recording.
"""

from __future__ import annotations

import itertools
import weakref
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property, partial
from operator import attrgetter
from types import TracebackType
from typing import Any, TypeVar

from hookline.backends.protocol import Backend, Label, Listening, Needs, Placement, Rank, Tap
from hookline.backends.quick import Keeper, Keeping, quickly_called
from hookline.backends.tap import quick_placement
from hookline.backends.undoing import Undoing
from hookline.errors import InvalidArgument
from hookline.hooks.entering import Enterable
from hookline.hooks.ops import Chosen
from hookline.hooks.placing import callers_line
from hookline.hooks.select import ModuleTree, Target
from hookline.hooks.session import Session, opened
from hookline.hooks.site_tap import Entrance, SiteTap
from hookline.recording.calls import NO_PARAMETERS_YET, NONE_YET, ONE_ARGUMENT, Call, SiteRecord
from hookline.recording.explain import explain
from hookline.recording.keeping import RecordingTarget, facts_of
from hookline.recording.ops import RecordedOps
from hookline.recording.recording import Recording
from hookline.recording.store import Store
from hookline.trees import ONE, slotted


class StopForward(BaseException):
    """Ends a forward early. Not an Exception: a model's own `except Exception` must not catch it."""


class Recorder(Enterable, Undoing):
    """An open or finished `record` block; entering it gives its Recording."""

    def __init__(
        self,
        backend: Backend,
        tree: ModuleTree,
        targets: list[Target],
        store: Store,
        keeping: RecordingTarget | None,
        *,
        inputs: bool,
        grads: bool,
        stop: bool,
    ) -> None:
        super().__init__()
        self._backend = backend
        self._tree: ModuleTree | None = tree
        self._store = store
        self._keeping = keeping
        self._session = Session()
        self._signal = StopForward()
        self._order = itertools.count()
        self._ends = itertools.count()
        self._number = self._session.number
        self._tensor = backend.tensor
        # Looked up once: they are asked on every call.
        self._in_recompute, self._backward_number = backend.in_recompute, backend.backward_number
        self._sequence_number, self._listener = backend.sequence_number, backend.listener
        self._inputs, self._grads = inputs, grads
        self._needs = Needs(inputs=inputs, replaces=False, grads=grads, stops=stop)
        self._needs_after = self._needs._replace(inputs=False)
        self._rank = Rank.STOP if stop else Rank.OBSERVE
        fired: dict[str, SiteRecord] = {}
        self._plain = None if stop or store.copy is None else self._plain_calls(fired)
        taps = _full_recorders if inputs or grads else _output_recorders
        self._sites: Sequence[_SiteRecorder] = taps(self, targets)
        self._waiting = {site.record.name for site in self._sites} if stop else None
        self._entered = self._is_open = False
        self._line = ""
        self._ops: RecordedOps | None = None
        self._model: Any = None
        self.recording = Recording([site.record for site in self._sites], backend.name, fired)
        self.recording._settle = backend.settled
        store.recording = weakref.ref(self.recording)

    def __enter__(self) -> Recording:  # type: ignore[override]
        if self._entered:
            raise InvalidArgument("this record block was used already; call record(...) again.")
        self._entered = True
        self.is_used()
        try:
            self._begin()
            return self.recording
        except BaseException:
            self._is_open = False  # nothing was recorded
            self.close()
            raise

    def _begin(self) -> None:
        if self._store.budget is not None:
            self._store.budget.open()
        self._line = line = callers_line()
        placements = _placements(self)
        # It is left from the last line to the first: the session and the taps, what there is to say, the run.
        if self._keeping is not None:
            self.noted(self._keeping.close)
            self._keeping.open(facts_of(self._backend, [site.target for site in self._sites]))
        self.push(self._finish)
        self.push(self._finish)
        self._backend.attach(self, placements)  # where values arrive later, it is waited for them when these go
        if self._ops is not None:
            self._ops.attach(self, self._model, Label("record", "recording of operators", "", line))
        if self._grads:
            self._hear_parameters(line)
        self.noted(self._session.close)
        self._session.open()
        self._is_open = True
        self.entered()

    def _finish(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        """What is done once, when nothing more is recorded; whether the block was ended by `stop`."""
        self._store.open = False
        self.recording._settle = None
        stopped = error is self._signal
        if stopped:
            self._signal = StopForward()  # the other one has a traceback, in which this block is
        if self._tree is not None and self._is_open:
            explain(self, self._tree, self._backend, stopped=stopped, error=error)
            if self._ops is not None:
                self._ops.explain()
        if self._inputs or self._grads:
            for site in self._sites:
                site.forget_calls_under_way()
        # A recording outlives its model: what refers to modules goes now.
        self._tree, self._model, self._sites = None, None, []
        if self._is_open:
            self._is_open = False
            if self._keeping is not None:
                self._keeping.take(self.recording)
        self.left()
        return stopped

    def _all_is_well(self, fired: int) -> bool:
        """Whether nothing is to be said of any site: all were called, all calls got gradients."""
        store = self._store
        whole = self._grads and fired == len(self._sites) and store.heard == next(self._ends)
        return whole and not store.is_remarkable and not store.not_kept

    def copy_by(self, copy: Callable[[Any], Any]) -> None:
        """Has values be copied by another function; for recordings that nobody writes to."""
        self._store.copy_by(copy)
        if self._plain is not None:
            self._plain.is_plain = False

    def _plain_calls(self, fired: dict[str, SiteRecord]) -> Keeping | None:
        """What taps need that do plain calls in C; None where there are no tensors that it copies."""
        copying = self._backend.copying
        if copying is None:
            return None
        return Keeping(copying, opened, self._number, self._backward_number, self._order, fired)

    def _record_ops(self, model: Any, chosen: Chosen) -> None:
        """Has the operators that run in the sites recorded too."""
        self._model, self._ops = model, RecordedOps(self, chosen)

    def _end_if_last(self, name: str) -> None:
        """Ends the forward if every site that was asked for has fired."""
        assert self._waiting is not None
        self._waiting.discard(name)
        if not self._waiting:
            raise self._signal

    def _hear_parameters(self, line: str) -> None:
        framework = self._backend.framework
        if not framework.can("param_grads"):
            for site in self._sites:
                site.record._no_param_grads = framework.unsupported("param_grads")
            return
        for site in self._sites:
            site.record._param_grads = NO_PARAMETERS_YET
        heard = [(site.target[0], site.target[1], site.record._take_param_grad) for site in self._sites]
        self._backend.hear_parameters(self, heard, Label("record", "recording of parameter gradients", "", line))


class _SiteRecorder:
    """What is known of one site while it is recorded; a tap itself, since there is one for every module."""

    rank: Rank
    needs: Needs
    elsewhere = 0
    """How many calls belonged to other blocks."""

    recorder: Recorder
    target: Target
    record: SiteRecord

    @cached_property
    def label(self) -> Label:  # made when asked for, which is seldom: there is one for every module
        return Label("record", "recording", self.record.name, self.recorder._line)

    @property
    def under_way(self) -> int:
        """How many calls were entered and never left, where that is known."""
        return 0

    def forget_calls_under_way(self) -> None:
        """Lets go of calls that never came to their end."""


Site = TypeVar("Site", bound=_SiteRecorder)


@quickly_called
class _OutputRecorder(Keeper, _SiteRecorder, Tap):  # type: ignore[override]  # of its label
    """Records the outputs of one site.

    `Keeper` does the plain calls, and makes it without a frame of Python: there is one for every module.
    """

    kwargs = False
    alike = True

    def call_anyhow(self, module: Any, args: Any, output: Any) -> None:
        """What a call of the tap does."""
        recorder = self.recorder
        # What `Session.sees_this_context` does, written out: it would be a fourth frame beside three of a call.
        mine = opened()
        if mine and recorder._number not in mine:
            self.elsewhere += 1
            return
        record, store = self.record, recorder._store
        if recorder._backward_number() != -1 and recorder._in_recompute(record._has_calls):
            record._repeats += 1
            return
        if store.copy is not None and type(output) is recorder._tensor:
            stored = store.copy(output)
        else:
            stored = store.tree(output, record.name)
        if not record._outputs:
            recorder.recording._fire(record)
        record._outputs.append((next(recorder._order), stored))
        if recorder._waiting is not None:
            recorder._end_if_last(record.name)


def _output_recorders(recorder: Recorder, targets: list[Target]) -> list[_OutputRecorder]:
    """A tap for each target."""
    needs, plain = recorder._needs, recorder._plain
    sites = [
        _OutputRecorder(recorder, target, needs, plain, target[0], record, record._outputs)
        for target, record in _records(recorder, targets)
    ]
    return _ranked(recorder, sites)


def _records(recorder: Recorder, targets: list[Target]) -> Iterator[tuple[Target, SiteRecord]]:
    """Each target with an empty record."""
    store = recorder._store
    for target in targets:
        name, module, aliases = target
        record = SiteRecord(name, aliases, store)
        record.type = type(module).__name__
        yield target, record


def _ranked(recorder: Recorder, sites: list[Site]) -> list[Site]:
    if recorder._rank is not Rank.OBSERVE:
        for site in sites:
            site.rank = recorder._rank
    return sites


class _FullRecorder(SiteTap, _SiteRecorder):
    """Records inputs and gradients as well."""

    while_leaving = True

    alike = True

    memory: Any
    """What the backend knows of the module."""

    @property
    def needs(self) -> Needs:  # type: ignore[override]  # one for all: there is a tap for every module
        return self.recorder._needs_after

    def forget_calls_under_way(self) -> None:
        self.drained()

    def begin(self, module: Any, args: Any, kwargs: Any) -> tuple[Call | None, Listening | None] | None:
        recorder = self.recorder
        if recorder._backward_number() != -1 and recorder._in_recompute(self.record._has_calls):
            return self._begin_again()
        store, site = recorder._store, self.record.name
        call, listener = Call(site, next(recorder._order), store), None
        if recorder._inputs:
            call._input = store.tree(args, site)
            call._kwargs = store.tree(kwargs, site)
        if recorder._grads:
            tensor = recorder._tensor
            call.sequence = recorder._sequence_number()
            listener = recorder._listener(call, self.memory)
            single = len(args) == 1 and not kwargs and type(args[0]) is tensor
            call._template_in = ONE_ARGUMENT if single else slotted((args, kwargs), tensor)[0]
            call._grads_in = call._grads_out = NONE_YET
        return call, listener

    def _begin_again(self) -> tuple[None, Listening] | None:
        """The beginning of a call that repeats an earlier one."""
        recorder, backend = self.recorder, self.recorder._backend
        self.record._repeats += 1
        recorder._store.is_remarkable = True
        begun = sorted(self.record.calls, key=attrgetter("order"))  # a module that calls itself ends otherwise
        earlier = backend.recomputed(begun) if recorder._grads else None
        if earlier is None:
            return None
        return None, backend.listener(earlier, None)

    def end(self, call: Call | None, passage: Listening | None, output: Any, number: int, references: int) -> Any:
        new = output if passage is None else passage.leave(output, number, references)
        if call is None:
            return new
        recorder, record = self.recorder, self.record
        store, single = recorder._store, type(output) is recorder._tensor
        if passage is not None:
            if single:
                call._template_out = ONE
            else:
                call._template_out, store.is_remarkable = slotted(output, recorder._tensor)[0], True
            if passage.remark is not None:
                record._remark, store.is_remarkable = passage.remark, True
        if single and store.copy is not None:
            call._output = store.copy(output)
        else:
            call._output = store.tree(output, record.name)
        call.ended = next(recorder._ends)
        if not record._calls:  # it has no others: see `SiteRecord.calls`
            recorder.recording._fire(record)
        record._calls.append(call)
        if recorder._waiting is not None:
            recorder._end_if_last(record.name)
        return new


class _Entrance(Entrance):
    """The tap before the forward of a site."""

    alike = True


_quick_site: Callable[[], _FullRecorder] = partial(_FullRecorder.__new__, _FullRecorder)
_quick_entrance: Callable[[], _Entrance] = partial(_Entrance.__new__, _Entrance)
"""Taps without a frame of Python: there are two for every module."""


def _full_recorders(recorder: Recorder, targets: list[Target]) -> list[_FullRecorder]:
    """A tap for each target."""
    session, memory, sites = recorder._session, recorder._backend.site_memory, []
    for target, record in _records(recorder, targets):
        site = _quick_site()
        site.recorder, site.target, site.record, site.session = recorder, target, record, session
        site.memory = memory(target[1])
        sites.append(site)
    return _ranked(recorder, sites)


def _placements(recorder: Recorder) -> list[Placement]:
    """All taps of a recorder, those before the forward among them, where there are such."""
    sites: Any = recorder._sites
    if not (recorder._inputs or recorder._grads):
        return [quick_placement((site.target[1], site)) for site in sites]
    needs, held_by, found = recorder._needs, weakref.ref, list[Placement]()
    for site in sites:
        entrance = _quick_entrance()
        entrance._site, entrance.needs = held_by(site), needs
        module = site.target[1]
        found += quick_placement((module, entrance)), quick_placement((module, site))
    return found
