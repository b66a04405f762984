"""Taps: what a watch puts on the modules of a step that is recorded."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property, partial
from sys import getrefcount
from typing import TYPE_CHECKING, Any

from hookline.backends.protocol import Label, Listening, Needs, Placement, Tap
from hookline.backends.quick import Measurer, quickly_called
from hookline.hooks.pending import call_number
from hookline.hooks.select import Target
from hookline.hooks.session import opened
from hookline.hooks.site_tap import SiteTap
from hookline.reporting import warn
from hookline.trees import leaves
from hookline.watching.steps import Key, Visit

if TYPE_CHECKING:
    from hookline.watching.block import Watch


_Call = tuple[Key | None, Visit]
"""What is known of a call until it ends; no key where it repeats an earlier one."""


class SiteWatcher:
    """What is known of one site while it is watched; a tap itself, since there is one for every module."""

    needs: Needs
    elsewhere = 0
    """How many calls belonged to other blocks."""
    fired = heard = repeats = 0
    """Over all steps, for the audit."""
    broken: str | None = None
    remark: str | None = None
    ended = 0
    """How many calls have ended in the forward under way."""
    forward = -1
    """The number of the forward that the visits are of."""

    def __init__(self, watch: Watch, target: Target) -> None:
        super().__init__()
        self.watch, self.target = watch, target
        self.needs = watch.needs
        self.visits: list[Visit] = []
        """The calls of the forward under way; plain ones by their number, as nobody asks more of them."""

    @cached_property
    def label(self) -> Label:  # made when asked for, which is seldom: there is one for every module
        return Label("watch", "watching", self.target.name, self.watch.line)

    @property
    def under_way(self) -> int:
        """How many calls were entered and never left, where that is known."""
        return 0

    def forget_calls_under_way(self) -> None:
        """Lets go of calls that never came to their end."""

    def placements(self) -> list[Placement]:
        raise NotImplementedError

    def visit(self) -> tuple[Visit, bool]:
        """The call under way, and whether it repeats an earlier one, which is then the one that is meant."""
        watch = self.watch
        backend = watch.backend
        if watch.clock.is_due and watch.watchers_tell and not backend.in_recompute(True):
            watch.finish_step()  # a part is called without the model
        if self.forward != watch.forward:  # calls are counted from 0 again
            self.forward, self.visits, self.ended = watch.forward, [], 0
        if watch.backward_number() != -1 and backend.in_recompute(bool(self.visits)):
            self.repeats += 1
            earlier = backend.recomputed(self.visits) if watch.grads else None
            return earlier or (self.visits[-1] if self.visits else Visit(0, 0)), True
        visit = Visit(len(self.visits), backend.sequence_number() if watch.grads else 0)
        self.visits.append(visit)
        return visit, False

    def count(self, visit: Visit) -> None:
        """Numbers calls in the order in which they end, as a recording and torch's own hooks have them."""
        visit.number, self.ended = self.ended, self.ended + 1
        self.fired += 1

    def hear(self, key: Key, numbers: Sequence[int], grad: Any) -> None:
        if self.watch.is_open:
            self.heard += 1
            self.reduce(key, grad, scaled=self.watch.is_scaled)

    def reduce(self, key: Key, tree: Any, *, scaled: bool = False) -> None:
        """Adds the statistics of every tensor in `tree`; a failure is reported once and ends this site's."""
        if self.broken is not None:
            return
        watch = self.watch
        try:
            if type(tree) is watch.tensor and not scaled:
                watch.gathered.add(key, tree)
                return
            for leaf in leaves(tree, watch.tensor):
                watch.gathered.add(key, watch.unscaled(leaf) if scaled else leaf)
        except Exception as error:  # whatever it is, training goes on
            failed = f"({key.kind}) failed and stops: {type(error).__name__}: {error}"
            self.broken = f"measuring it {failed}"
            warn(f"watching {key.site!r} {failed}", stacklevel=2)


class OutputWatcher(SiteWatcher, Tap):  # type: ignore[override]  # of its label
    """Reduces the outputs of one site and, where asked, the gradients of these."""

    kwargs = False
    alike = True

    def placements(self) -> list[Placement]:
        return [Placement(self.target.module, self)]

    def __call__(self, module: Any, args: Any, output: Any) -> Any:
        references = getrefcount(output)
        watch = self.watch
        # What `Session.sees_this_context` does, written out: it would be another frame on every call.
        mine = opened()
        if mine and watch.number not in mine:
            self.elsewhere += 1
            return None
        if self.broken is not None:
            return None
        visit, repeated = self.visit()
        mode = watch.mode
        if not repeated:
            self.fired += 1  # the number of a visit is right already: this tap is told when calls end
            self.reduce(Key(self.target.name, "output", visit, mode), output)
        if not watch.grads:
            return None
        hear = partial(self.hear, Key(self.target.name, "grad_output", visit, mode))
        new = watch.backend.heard(output, hear, call_number(self, module, args), references)
        return None if new is output else new


@quickly_called
class QuickWatcher(Measurer, OutputWatcher):  # type: ignore[override]  # of its label
    """Reduces the outputs of one site, and nothing else: `Measurer` does the plain calls."""

    def __init__(self, watch: Watch, target: Target) -> None:
        super().__init__(watch, target)
        self.measuring, self.keys, self.mode = watch.measuring, [], None

    def call_anyhow(self, module: Any, args: Any, output: Any) -> None:
        """What a call of the tap does; the next call with its number may be a plain one."""
        OutputWatcher.__call__(self, module, args, output)
        mode, number = self.watch.last_mode, len(self.visits) - 1
        if mode is not self.mode:
            self.mode, self.keys = mode, []
        if number == len(self.keys):
            self.keys.append(Key(self.target.name, "output", number, mode))


class _HeardCall:
    """Has the gradients of one call reduced."""

    __slots__ = ("_mode", "_visit", "_watcher")

    def __init__(self, watcher: SiteWatcher, visit: Visit, mode: str) -> None:
        self._watcher, self._visit, self._mode = watcher, visit, mode

    def _hear_input(self, numbers: Sequence[int], grad: Any) -> None:
        watcher = self._watcher
        watcher.hear(Key(watcher.target.name, "grad_input", self._visit, self._mode), numbers, grad)

    def _hear_output(self, numbers: Sequence[int], grad: Any) -> None:
        watcher = self._watcher
        watcher.hear(Key(watcher.target.name, "grad_output", self._visit, self._mode), numbers, grad)

    def _hear_both(self, grad_output: Any, grad_input: Any) -> None:
        self._hear_output((), grad_output)
        self._hear_input((), grad_input)

    def _hear_doubt(self, sentence: str) -> None:
        """A watch has no values that could be another place's."""


class FullWatcher(SiteTap, SiteWatcher):
    """Reduces inputs as well, and the gradients of these."""

    while_leaving = True

    def __init__(self, watch: Watch, target: Target) -> None:
        SiteTap.__init__(self)
        SiteWatcher.__init__(self, watch, target)
        self.session = watch.session
        self.memory = watch.backend.site_memory(target.module)
        self.needs = self.needs._replace(inputs=True)
        # One for all steps: taps that are known already need no new program where one is compiled.
        self._entrance = self.entrance(self.label, self.needs)

    def forget_calls_under_way(self) -> None:
        self.drained()

    def placements(self) -> list[Placement]:
        return [Placement(self.target.module, self._entrance), Placement(self.target.module, self)]

    def begin(self, module: Any, args: Any, kwargs: Any) -> tuple[_Call, Listening | None] | None:
        if self.broken is not None:
            return None
        watch = self.watch
        visit, repeated = self.visit()
        key = Key(self.target.name, "input", visit, watch.mode)
        if not repeated:
            self.reduce(key, (args, kwargs))
        listener = None
        if watch.grads:
            listener = watch.backend.listener(_HeardCall(self, visit, key.mode), self.memory)
        return (None if repeated else key, visit), listener

    def end(self, call: _Call, passage: Listening | None, output: Any, number: int, references: int) -> Any:
        key, visit = call
        if key is not None:
            self.count(visit)
            self.reduce(key._replace(kind="output"), output)
        if passage is None:
            return output
        new = passage.leave(output, number, references)
        self.remark = passage.remark or self.remark
        return new
