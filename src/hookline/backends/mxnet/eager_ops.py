"""Operators of blocks that run as they are written: each passes one function of MXNet's, which tells of it.

MXNet has an op hook for compiled graphs alone. Operators that run one by one are all called through one function,
which is replaced for as long as somebody listens. What an operator does in the backward is heard by an identity in
front of each of its inputs: their gradients are what `_backward_<operator>` puts out.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

from hookline.backends.mxnet import backward, compat, dehybridize, gradients, modules, taps
from hookline.backends.mxnet.unseen import is_quiet, unseen
from hookline.backends.nouns import Model, Tree
from hookline.backends.operators import BACKWARD, FORWARD, Operator, OpListener, OpSite, Scope
from hookline.backends.patching import Patch
from hookline.backends.protocol import Label
from hookline.backends.undoing import Undoing
from hookline.errors import Unsupported


def hook_operators(
    undoing: Undoing, model: Model, places: dict[str, Any], listener: OpListener, label: Label
) -> None:
    """Has `listener` told of each operator that runs in these blocks or their parts."""
    inside: dict[int, tuple[str, Any]] = {}
    for name, module in places.items():
        for below, part in modules.walk(module):
            inside.setdefault(id(part), (".".join(filter(None, (name, below))), part))
    for name, part in inside.values():
        if compat.has_no_code(part):
            raise Unsupported(
                backend="mxnet",
                feature="an op hook here",
                why=f"{name!r} is a SymbolBlock: its operators run in a graph, and those around it do not",
                instead="attach to the SymbolBlock and to the rest one by one (where=)",
            )
    watcher = EagerOperators(listener)
    # Compiled parts, and the blocks themselves, run as they are written.
    dehybridize.hold_around(undoing, [*places.values()], themselves=True)
    if id(model) not in inside:
        taps.around_calls(undoing, model, watcher.model_call, label._replace(site=""))
    for name, part in inside.values():
        taps.around_calls(undoing, part, partial(watcher.part_call, name), label._replace(site=name))
    _invoke.use(undoing, watcher)


class _Calls(threading.local):
    """The calls of one forward, in one thread."""

    def __init__(self) -> None:
        self.scopes: list[Scope] = []
        self.counts: dict[str, int] = {}
        self.depth = 0


class EagerOperators:
    """Knows which block is running, and tells a listener of each operator in it."""

    def __init__(self, listener: OpListener) -> None:
        self.listener = listener
        self._calls = _Calls()
        self._starts: dict[tuple[str, str], OpSite] = {}

    # Calls of blocks

    def model_call(self, original: Any, *args: Any, **kwargs: Any) -> Any:
        """A call of the model, where it is not listened to itself: calls of its parts are counted anew."""
        with self._forward():
            return original(*args, **kwargs)

    def part_call(self, name: str, original: Any, *args: Any, **kwargs: Any) -> Any:
        calls = self._calls
        with self._forward():
            if not calls.scopes and not self.listener.is_mine():
                return original(*args, **kwargs)
            number = calls.counts.get(name, 0)
            calls.counts[name] = number + 1
            calls.scopes.append(Scope(name, number, self._start(name, FORWARD)))
            try:
                return original(*args, **kwargs)
            finally:
                calls.scopes.pop()

    @contextmanager
    def _forward(self) -> Iterator[None]:
        calls = self._calls
        if not calls.depth:
            calls.counts = {}
        calls.depth += 1
        try:
            yield
        finally:
            calls.depth -= 1

    # Operators

    def scope(self) -> Scope | None:
        """The call under way in this thread, if it is listened to."""
        scopes = self._calls.scopes
        return scopes[-1] if scopes else None

    def before(self, scope: Scope, handle: int, inputs: list[Any]) -> list[Any]:
        """Notes an operator that is about to run; the arrays to run it on."""
        step = scope.step.next.get(handle)
        if step is None:
            operator = Operator(compat.operator_name(handle))
            step = scope.step.then(handle, operator, wanted=self.listener.wants(operator, FORWARD))
        scope.step = step
        with unseen():
            if step.wanted and self.listener.inputs:
                self.listener.before(step, scope.call, inputs, None)
            return self._heard(scope, step, inputs)

    def after(self, scope: Scope, step: OpSite, output: Tree) -> None:
        """An operator has run."""
        if step.wanted:
            with unseen():
                self.listener.after(step, scope.call, output, None)

    def _heard(self, scope: Scope, step: OpSite, inputs: list[Any]) -> list[Any]:
        """The inputs, led through an identity where a gradient may come."""
        operator = compat.backward_operator(step.operator.name)
        live = [number for number, array in enumerate(inputs) if gradients.is_live(array)]
        if not live or not self.listener.wants(Operator(operator), BACKWARD):
            return inputs

        count = len(inputs)  # the graph holds what follows, and must not hold arrays of itself

        def tell(grads: list[Any]) -> None:
            if self not in _invoke.users:
                return
            outputs: list[Any] = [None] * count
            for number, grad in zip(live, grads, strict=True):
                outputs[number] = grad
            at = scope.backward if scope.task == backward.backward_number() else None
            at = at or self._start(scope.module, BACKWARD)
            following = at.next.get(step) or at.then(step, Operator(operator), wanted=True)
            scope.backward, scope.task = following, backward.backward_number()
            self.listener.after(following, scope.call, outputs[0] if len(outputs) == 1 else tuple(outputs), None)

        led = list(inputs)
        for number, array in zip(live, gradients.joined([inputs[n] for n in live], tell), strict=True):
            led[number] = array
        return led

    def _start(self, module: str, phase: str) -> OpSite:
        key = module, phase
        if (step := self._starts.get(key)) is None:
            step = self._starts[key] = OpSite.start(module, phase)
        return step


def _invoked(invoke: Any, handle: int, inputs: Any, keys: Any, values: Any, out: Any, *rest: Any) -> Any:
    """One operator, in place of MXNet's function that runs it."""
    told = [(watcher, scope) for watcher in _invoke.users if (scope := watcher.scope()) is not None]
    if not told or is_quiet():
        return invoke(handle, inputs, keys, values, out, *rest)
    arrays = list(inputs)
    for watcher, scope in told:
        arrays = watcher.before(scope, handle, arrays)
    steps = [scope.step for _, scope in told]
    output = invoke(handle, arrays, keys, values, out, *rest)
    for (watcher, scope), step in zip(told, steps, strict=True):
        watcher.after(scope, step, output)
    return output


_invoke: Patch[EagerOperators] = Patch([compat.INVOKE], partial(partial, _invoked))
