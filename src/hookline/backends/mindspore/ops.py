"""Operators of a MindSpore model: a dispatch mode that knows which cell is running.

The construct of every cell in question is replaced, in the instance, by one that notes the call and, at the
outermost, switches the mode on. For a backward it is switched on where MindSpore's engine is entered. Which cell
an operator of it belongs to is told by taps: on the cell's outputs, where its backward begins, and on its inputs,
where that ends.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import mindspore as ms
from mindspore import nn

from hookline.backends.mindspore import compat
from hookline.backends.mindspore.constructs import ReplacedConstruct
from hookline.backends.mindspore.failing import clean_after_failures
from hookline.backends.mindspore.gradients import is_live, tap
from hookline.backends.mindspore.modules import walk
from hookline.backends.nouns import Tree
from hookline.backends.operators import BACKWARD, FORWARD, Operator, OpListener, OpSite, Scope
from hookline.backends.tap import Label
from hookline.backends.undoing import Undoing
from hookline.trees import leaves, map_leaves

HOOKLINE = str(Path(__file__).parent.parent.parent)
MINDSPORE = str(Path(ms.__file__).parent)


def hook_operators(
    undoing: Undoing, model: nn.Cell, places: dict[str, nn.Cell], listener: OpListener, label: Label
) -> None:
    """Has `listener` told of every operator that runs in these cells or their parts."""
    inside: dict[int, tuple[str, nn.Cell]] = {}
    for name, cell in places.items():
        for below, part in walk(cell):
            inside.setdefault(id(part), (f"{name}.{below}" if name and below else name or below, part))
    mode = OperatorMode(listener)
    clean_after_failures(undoing)
    undoing.noted(mode.close)
    compat.around_backward(undoing, mode.backward)
    compat.forget_compiled(undoing)
    for name, cell in inside.values():
        construct = _ToldConstruct(mode, name, cell, label._replace(site=name))
        undoing.noted(construct.remove)
        construct.place()


class _Thread(threading.local):
    """What is under way in one thread."""

    def __init__(self) -> None:
        self.scopes: list[Scope] = []
        self.calls: dict[str, int] = {}
        self.backward: Scope | None = None
        self.quiet = 0


class OperatorMode(ms.MsDispatchMode):  # type: ignore[misc]
    """Sees each operator and tells its listener, with the cell it belongs to."""

    def __init__(self, listener: OpListener) -> None:
        self.listener = listener
        self.open = True
        self.local = _Thread()
        self._starts: dict[tuple[str, str], OpSite] = {}
        self._task = 0

    def close(self) -> None:
        """Nobody is told any more, also of a forward that is under way."""
        self.open = False

    @contextmanager
    def quiet(self) -> Iterator[None]:
        """Operators of this block are hookline's own."""
        self.local.quiet += 1
        try:
            yield
        finally:
            self.local.quiet -= 1

    # Calls of cells

    def enter(self, name: str) -> Scope:
        call = self.local.calls.get(name, 0)
        self.local.calls[name] = call + 1
        scope = Scope(name, call, self._start(name, FORWARD))
        self.local.scopes.append(scope)
        return scope

    def leave(self, scope: Scope) -> None:
        while self.local.scopes and self.local.scopes.pop() is not scope:
            pass

    def _start(self, name: str, phase: str) -> OpSite:
        key = (name, phase)
        if (step := self._starts.get(key)) is None:
            step = self._starts[key] = OpSite.start(name, phase)
        return step

    # Backwards

    @contextmanager
    def backward(self) -> Iterator[None]:
        """Around a run of the engine."""
        if not self.open or not self._starts or not self.listener.is_mine():
            yield
            return
        scopes, self.local.scopes, self.local.backward = self.local.scopes, [], None
        self._task += 1
        try:
            with self:
                yield
        finally:
            self.local.scopes, self.local.backward = scopes, None

    def begins(self, scope: Scope) -> None:
        """The backward of a cell's call begins."""
        if scope.backward is None or scope.task != self._task:
            scope.backward, scope.task = self._start(scope.module, BACKWARD), self._task
        self.local.backward = scope

    def ends(self, outer: Scope | None) -> None:
        """The backward of a call has ended: what comes now is of the call around it."""
        self.local.backward = None
        if outer is not None:
            self.begins(outer)

    # Operators

    def __ms_dispatch__(self, func: Any, args: Tree, kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        found = None if self.local.quiet or not self.open else self._step(func)
        if found is None or not found[1].wanted:
            return func(*args, **kwargs)
        scope, step = found
        listener = self.listener
        source = _line() if listener.sources and step.phase == FORWARD else None
        if listener.inputs:
            listener.before(step, scope.call, list(leaves((args, kwargs), ms.Tensor)), source)
        out = func(*args, **kwargs)
        listener.after(step, scope.call, out, source)
        return out

    def _step(self, func: Any) -> tuple[Scope, OpSite] | None:
        if self.local.scopes:
            scope = self.local.scopes[-1]
            scope.step = step = self._next(scope.step, func)
            return scope, step
        if (back := self.local.backward) is None or back.backward is None:
            return None
        back.backward = step = self._next(back.backward, func)
        return back, step

    def _next(self, before: OpSite, func: Any) -> OpSite:
        found = before.next.get(func.name)
        if found is not None:
            return found
        operator = Operator(func.name)
        return before.then(func.name, operator, wanted=self.listener.wants(operator, before.phase))


def _line() -> str | None:
    """`file.py:12` of the nearest caller that is neither MindSpore's nor hookline's."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        file = frame.f_code.co_filename
        if not file.startswith((HOOKLINE, MINDSPORE, "<")):
            return f"{Path(file).name}:{frame.f_lineno}"
        frame = frame.f_back
    return None


class _ToldConstruct(ReplacedConstruct):
    """The construct of a cell whose operators are told."""

    def __init__(self, mode: OperatorMode, name: str, cell: nn.Cell, label: Label) -> None:
        super().__init__(cell, self._called, label)
        self._mode, self._name = mode, name

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        mode = self._mode
        if mode.local.scopes:
            return self._within(mode.local.scopes[-1], args, kwargs)
        if not mode.open or not mode.listener.is_mine():
            return self.original(*args, **kwargs)
        mode.local.calls = {}
        with mode:
            return self._within(None, args, kwargs)

    _called = __call__

    def _within(self, outer: Scope | None, args: Tree, kwargs: Any) -> Any:
        mode = self._mode
        scope = mode.enter(self._name)
        try:
            args, kwargs = self._led((args, kwargs), lambda grad: mode.ends(outer))
            output = self.original(*args, **kwargs)
            return self._led(output, lambda grad: mode.begins(scope))
        finally:
            mode.leave(scope)

    def _led(self, tree: Tree, mark: Callable[[Any], None]) -> Any:
        with self._mode.quiet():
            return map_leaves(lambda leaf: tap(leaf, mark) if is_live(leaf) else leaf, tree, ms.Tensor)
