"""Recorded operators: what `record(..., ops=...)` keeps, each operator a site of its own."""

from __future__ import annotations

import threading
from collections.abc import Hashable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from hookline.backends.operators import FORWARD, Operator, OpSite
from hookline.backends.protocol import Label
from hookline.backends.undoing import Undoing
from hookline.hooks.ops import Chosen, means
from hookline.recording.calls import Call, SiteRecord

if TYPE_CHECKING:
    from hookline.recording.recorder import Recorder


class RecordedOps:
    """Keeps the outputs of operators in a recording, and their inputs if that keeps inputs.

    Operators of a backward are kept if the recording keeps gradients.
    """

    sources = False

    def __init__(self, recorder: Recorder, chosen: Chosen) -> None:
        self.inputs = recorder._inputs
        self._recorder: Recorder | None = recorder
        self._chosen, self._grads = chosen, recorder._grads
        self._store = recorder._store
        self._sites: dict[str, SiteRecord] = {}
        self._seen: set[Operator] = set()
        self._pending = _Pending()

    def attach(self, undoing: Undoing, model: Any, label: Label) -> None:
        """Attaches to the modules of the recording."""
        assert self._recorder is not None
        targets = {site.target.name: site.target.module for site in self._recorder._sites}
        self._recorder._backend.hook_operators(undoing, model, targets, self, label)

    def is_mine(self) -> bool:
        """Whether operators that run in the current context are this recording's."""
        recorder = self._recorder
        return recorder is not None and recorder._session.sees_this_context(while_leaving=True)

    def explain(self) -> None:
        """Has the audit tell of each pattern by which no operator ran; the recording is over then."""
        recorder, self._recorder = self._recorder, None  # which refers to this: no cycle is left
        if recorder is None:
            return
        for pattern in self._chosen.patterns:
            if not any(means(pattern, operator) for operator in self._seen):
                silent = SiteRecord(f"*/{pattern}", (), None)
                silent.why = "no operator of that name ran in the modules chosen"
                recorder.recording._add(silent)

    @property
    def key(self) -> Hashable:
        return self._chosen.patterns, self.inputs, self._grads

    def wants(self, operator: Operator, phase: str) -> bool:
        return operator in self._chosen and (phase == FORWARD or self._grads)

    def before(self, step: OpSite, call: int, tensors: Sequence[Any], source: str | None) -> None:
        keep = partial(self._store.tensor, site=step.site)
        self._pending.stack.append((step, tuple(map(keep, tensors))))

    def after(self, step: OpSite, call: int, output: Any, source: str | None) -> None:
        recorder, store = self._recorder, self._store
        if recorder is None or not store.open:
            return
        site = self._sites.get(step.site)
        if site is None:
            site = self._sites[step.site] = SiteRecord(step.site, (), store)
            site.op = step.operator.name
            self._seen.add(step.operator)
            recorder.recording._add(site)
            recorder.recording._fire(site)
        order = next(recorder._order)
        stored = store.tree(output, step.site)
        if not self.inputs:
            site._outputs.append((order, stored))
            return
        kept = Call(step.site, order, store)
        kept._output, kept._input, kept._kwargs = stored, self._pending.take(step), {}
        site.calls.append(kept)


class _Pending(threading.local):
    """Inputs of operators that are under way in one thread; one that failed leaves its behind."""

    def __init__(self) -> None:
        self.stack: list[tuple[OpSite, tuple[Any, ...]]] = []

    def take(self, step: OpSite) -> tuple[Any, ...]:
        while self.stack:
            found, inputs = self.stack.pop()
            if found is step:
                return inputs
        return ()
