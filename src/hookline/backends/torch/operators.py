"""Operators of an eager torch model: a dispatch mode that knows which module is running.

The forward of every module in question is replaced, in the instance, by one that notes the call and, at
the outermost, switches the mode on. For a backward the mode is switched on where autograd's engine is
entered; which module an operator belongs to is found by the number of the autograd node that runs it.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from functools import lru_cache
from typing import Any

import torch
from torch import nn

from hookline.backends.forwards import ReplacedForward
from hookline.backends.operators import BACKWARD, FORWARD, Operator, OpListener, Scope, Step
from hookline.backends.protocol import Label
from hookline.backends.torch import compat
from hookline.backends.torch.attribution import Trail, current_line, is_own, unseen
from hookline.backends.torch.compat import QuickDispatchMode, current_node, graph_task, in_parts
from hookline.backends.torch.modules import walk
from hookline.backends.torch.parameters import recomputed
from hookline.trees import leaves

NO_NUMBER = 2**63
"""Nodes that accumulate a parameter's gradient are numbered above everything else."""

PLAIN = (torch.Tensor,)
"""The types that torch tells of an operation on no tensor with a dispatch of its own."""


def hook_operators(
    model: nn.Module, places: dict[str, nn.Module], listener: OpListener, label: Label
) -> Callable[[], None]:
    """Has `listener` told of every operator that runs in these modules or their parts; returns the undoing."""
    inside: dict[int, tuple[str, nn.Module]] = {}
    for name, module in places.items():
        for below, part in walk(module, name):
            inside.setdefault(id(part), (below, part))
    mode = OperatorMode(listener, list(inside.values()))
    with ExitStack() as placed:
        placed.callback(mode.close)
        placed.callback(compat.around_backward(mode.backward))
        if id(model) not in inside:
            placed.callback(_ModelForward(mode, model, label._replace(site="")).place())
        for name, module in inside.values():
            placed.callback(_PartForward(mode, name, module, label._replace(site=name)).place())
        return placed.pop_all().close


class _Thread(threading.local):
    """What is under way in one thread."""

    def __init__(self) -> None:
        self.scopes: list[Scope] = []
        self.calls: dict[str, list[Scope]] = {}  # of the forward under way, or the last one
        self.depth = 0
        self.quiet: Callable[[], Any] = nullcontext  # keeps what listeners do from other modes
        self.trail = Trail()


class OperatorMode(QuickDispatchMode):
    """Sees each operator and tells its listener, with the module it belongs to."""

    supports_higher_order_operators = True

    def __init__(self, listener: OpListener, modules: list[tuple[str, nn.Module]]) -> None:
        super().__init__()
        self.listener = listener
        self.local = _Thread()
        self.open = True
        self._modules = modules
        self._starts: dict[tuple[str, str], Step] = {}
        self._trails: list[Trail] = []
        self._owners: tuple[int, dict[int, Scope]] = (-1, {})

    def close(self) -> None:
        """Nobody is told any more, also of a forward that is under way."""
        self.open = False

    # Calls of modules

    def start(self, module: str, phase: str) -> Step:
        key = (module, phase)
        if (step := self._starts.get(key)) is None:
            step = self._starts[key] = Step.start(module, phase)
        return step

    @contextmanager
    def running(self) -> Iterator[None]:
        """The mode is on, and nothing of it is left afterwards."""
        local, modes = self.local, compat.dispatch_modes()
        if local.trail not in self._trails:
            self._trails.append(local.trail)
        if any(mode is self for mode in modes):
            yield
            return
        others = modes and not any(mode.is_infra_mode() for mode in modes)  # fakes need theirs
        before, local.quiet = local.quiet, compat.without_dispatch if others else nullcontext
        try:
            with self:
                yield
        finally:
            local.quiet = before

    def enter(self, module: str) -> Scope:
        """The scope of a call of `module` that begins."""
        local = self.local
        calls = local.calls.setdefault(module, [])
        outer = local.scopes[-1] if local.scopes else None
        start = self.start(module, FORWARD)
        number = compat.sequence_number()
        if (outer is not None and outer.muted) or (graph_task() != -1 and compat.in_recompute()):
            repeated = recomputed(calls)
            scope = Scope(module, repeated.call if repeated else 0, start, sequence=number, muted=True)
        else:
            scope = Scope(module, len(calls), start, sequence=number)
            calls.append(scope)
        local.scopes.append(scope)
        local.trail.mark(scope)
        return scope

    def leave(self, scope: Scope) -> None:
        """The call of `scope` has ended, and any within it that were left by an exception."""
        local = self.local
        while local.scopes and local.scopes.pop() is not scope:
            pass
        if local.scopes:
            local.trail.mark(local.scopes[-1])
        else:
            local.trail.mark(self._under_way() if scope.muted else None)

    # Backwards

    @contextmanager
    def backward(self) -> Iterator[None]:
        """Around a run of autograd's engine."""
        if not self.open or not self._trails or not self.listener.is_mine():
            yield
            return
        local = self.local
        scopes, local.scopes = local.scopes, []  # a model may call backward in its forward
        try:
            with self.running():
                yield
        finally:
            local.scopes = scopes
            local.trail.mark(scopes[-1] if scopes else None)

    def _under_way(self) -> Scope | None:
        """The scope of the autograd node that is running."""
        node = current_node()
        if node is None:
            return None
        number = compat.node_number(node)
        if number >= NO_NUMBER:
            return self._owner(node)
        if self.local.trail.covers(number):
            return self.local.trail.scope(number)
        # Made in another thread: with one candidate it is told, with several nobody can tell.
        others = [found for trail in self._trails if (found := trail.scope(number)) is not None]
        return others[0] if len(others) == 1 else None

    def _owner(self, node: Any) -> Scope | None:
        """The scope of a parameter whose gradient is accumulated: its name stands for a module's."""
        task, owners = self._owners
        if task != graph_task():
            owners = {}
            for name, module in self._modules:
                for own, parameter in module.named_parameters(name, recurse=False):
                    owners.setdefault(id(parameter), Scope(own, 0, self.start(own, FORWARD)))
            self._owners = graph_task(), owners
        return owners.get(id(node.variable))

    # Operators

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        local = self.local
        if local.scopes:
            scope = local.scopes[-1]
            if scope.muted or is_own(sys._getframe(1).f_code.co_filename) or unseen.depth:
                return func(*args, **kwargs)
            step = scope.step.next.get(func)
            if step is None:
                if (parts := in_parts(self, func, args, kwargs)) is not NotImplemented:
                    return parts
                step = self._new_step(scope.step, func)
            scope.step = step
        else:
            found = self._backward_step(func)
            if found is None:
                return func(*args, **kwargs)
            scope, step = found
        if not step.wanted or not self.open:
            return func(*args, **kwargs)
        listener = self.listener
        source = self._source(step.phase) if listener.sources else None
        quiet = local.quiet if not types or types == PLAIN else nullcontext
        if listener.inputs:
            with quiet():
                listener.before(step, scope.call, list(leaves((args, kwargs), torch.Tensor)), source)
        out = func(*args, **kwargs)
        with quiet():
            listener.after(step, scope.call, out, source)
        return out

    def _new_step(self, before: Step, func: Any) -> Step:
        operator = operator_of(func)
        return before.then(func, operator, wanted=self.listener.wants(operator, before.phase))

    def _backward_step(self, func: Any) -> tuple[Scope, Step] | None:
        if is_own(sys._getframe(2).f_code.co_filename) or unseen.depth:
            return None
        scope = self._under_way()
        if scope is None:
            return None
        if compat.in_recompute():  # of code outside of any module
            self.local.trail.mark(scope)
            return None
        if scope.backward is None or scope.task != graph_task():
            scope.backward, scope.task = self.start(scope.module, BACKWARD), graph_task()
        step = scope.backward.next.get(func) or self._new_step(scope.backward, func)
        scope.backward = step
        return scope, step

    def _source(self, phase: str) -> str | None:
        trail = self.local.trail
        if phase == FORWARD:
            line = current_line()
            trail.mark_line(line)
            return line
        node = current_node()
        return None if node is None else trail.line(compat.node_number(node))


class _PartForward(ReplacedForward):
    """The forward of a module whose operators are told."""

    def __init__(self, mode: OperatorMode, name: str, module: nn.Module, label: Label) -> None:
        super().__init__(module, "forward", self._called, label)
        self._mode, self._name = mode, name

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        mode = self._mode
        if not mode.local.scopes:
            return self._outermost(*args, **kwargs)
        scope = mode.enter(self._name)
        try:
            return self.original(*args, **kwargs)
        finally:
            mode.leave(scope)

    _called = __call__

    def _outermost(self, *args: Any, **kwargs: Any) -> Any:
        mode = self._mode
        if not mode.open or not mode.listener.is_mine():
            return self.original(*args, **kwargs)
        local = mode.local
        if local.depth == 0 and not compat.in_recompute():
            local.calls = {}
        with mode.running():
            scope = mode.enter(self._name)
            try:
                return self.original(*args, **kwargs)
            finally:
                mode.leave(scope)


class _ModelForward(ReplacedForward):
    """The forward of a model only parts of which are listened to: it tells where calls are counted anew."""

    def __init__(self, mode: OperatorMode, module: nn.Module, label: Label) -> None:
        super().__init__(module, "forward", self._called, label)
        self._mode = mode

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        local = self._mode.local
        if local.depth == 0 and not compat.in_recompute():
            local.calls = {}
        local.depth += 1
        try:
            return self.original(*args, **kwargs)
        finally:
            local.depth -= 1

    _called = __call__


def operator_of(func: Any) -> Operator:
    """An operator of torch by its name, `aten.add`, and overload, `Tensor`."""
    name, _, overload = str(func).rpartition(".")
    return Operator(name, overload) if hasattr(func, "overloadpacket") else Operator(str(func))


@lru_cache(maxsize=1)
def operator_names() -> tuple[Operator, ...]:
    """Every operator that is registered, with its overload."""
    return tuple(
        Operator(f"{space}.{rest.partition('.')[0]}", rest.partition(".")[2] or "default")
        for space, _, rest in (name.partition("::") for name in compat.all_operators())
    )
