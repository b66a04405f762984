"""Mode: the operators of an eager torch model: a dispatch mode that knows which module is running.

Forwards tell it which call is under way (forwards.py). For a backward it is switched on where autograd's engine
is entered; which module an operator belongs to is found by the number of the autograd node that runs it.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from contextlib import ExitStack
from functools import lru_cache, partial
from sys import _getframe as _frame
from typing import Any

import torch
from torch import nn

from hookline.backends.operators import BACKWARD, FORWARD, Operator, OpListener, OpSite
from hookline.backends.torch import compat
from hookline.backends.torch.compat import (
    QuickDispatchMode,
    calls_the_model,
    current_node,
    graph_task,
    in_parts,
    is_repeating,
    sequence_number,
)
from hookline.backends.torch.eager.attribution import Trail, current_line, is_own, known_files
from hookline.backends.torch.eager.calls import Here, Local, Scope
from hookline.backends.torch.parameters import recomputed
from hookline.backends.torch.unseen import is_unseen, unseen_threads
from hookline.backends.undoing import Filled, filled
from hookline.trees import leaves

NO_NUMBER = 2**63
"""Nodes that accumulate a parameter's gradient are numbered above everything else."""

PLAIN = (torch.Tensor,)
"""The types that torch tells of an operation on no tensor with a dispatch of its own."""


SINGLE = (int, float, bool, type(None), torch.dtype)
"""Types of arguments that hold no tensor."""


class OperatorMode(QuickDispatchMode):
    """Sees each operator and tells its listener, with the module it belongs to."""

    supports_higher_order_operators = True

    def __init__(
        self, listener: OpListener, modules: list[tuple[str, nn.Module]], *, compiled_parts: bool = False
    ) -> None:
        super().__init__()
        self._compiled_parts = compiled_parts
        self.listener = listener
        self.local = Local()
        self.open = True
        self._modules = [(name, weakref.ref(module)) for name, module in modules]
        self._starts: dict[tuple[str, str], OpSite] = {}
        self._trails: list[Trail] = []
        self._owners: dict[int, tuple[weakref.ref[torch.Tensor], Scope | None]] = {}
        self._known: dict[tuple[Any, str], tuple[Operator, bool]] = {}
        self._whole: set[Any] = set()  # operators that are not made of others
        self._plain = not listener.inputs and not listener.sources
        self._after = listener.after

    def close(self) -> None:
        """Nobody is told any more, also of a forward that is under way."""
        self.open = False

    # Calls of modules

    def start(self, module: str, phase: str) -> OpSite:
        key = (module, phase)
        if (step := self._starts.get(key)) is None:
            step = self._starts[key] = OpSite.start(module, phase)
        return step

    def running(self) -> Filled:
        """A context in which the mode is on, and after which nothing of it is left."""
        return filled(self._switch_on)

    def _switch_on(self, stack: ExitStack) -> None:
        here, modes = self.local.here, compat.dispatch_modes()
        if here.trail not in self._trails:
            self._trails.append(here.trail)
        if any(mode is self for mode in modes):
            return
        others = modes and not any(mode.is_infra_mode() for mode in modes)  # fakes need theirs
        stack.callback(here.scopes.clear)
        stack.callback(setattr, here, "quiet", here.quiet)
        here.quiet = compat.without_dispatch if others else None
        for _ in range(2):
            stack.callback(self._switch_off)
        self.__enter__()

    def _switch_off(self) -> None:
        while (modes := compat.dispatch_modes()) and modes[-1] is self:
            self.__exit__(None, None, None)

    def enter(self, here: Here, start: OpSite) -> Scope:
        """The scope of a call of a module that begins, in this thread; `start` is of the module."""
        number, scopes = sequence_number(), here.scopes
        if (calls := here.calls.get(start)) is None:
            calls = here.calls[start] = []
        if (scopes and scopes[-1].muted) or (graph_task() != -1 and compat.in_recompute(bool(calls))):
            repeated = recomputed(calls)
            scope = Scope(start.module, repeated.call if repeated else 0, start, number, True)
        else:
            scope = Scope(start.module, len(calls), start, number)
            calls.append(scope)
        scopes.append(scope)
        here.trail.mark(scope, number)
        return scope

    def leave(self, here: Here, scope: Scope) -> None:
        """The call of `scope` has ended, and any within it that were left by an exception."""
        scopes = here.scopes
        while scopes and scopes.pop() is not scope:
            pass
        if scopes:
            here.trail.mark(scopes[-1], sequence_number())
        else:
            node = current_node() if scope.muted else None
            here.trail.mark(None if node is None else self._scope_of(here, node), sequence_number())
            here.known = sequence_number()

    def suspended(self) -> Filled:
        """A context for a part of the model that is compiled: the mode is off, its backward is nobody's here."""
        return filled(self._suspend)

    def _suspend(self, stack: ExitStack) -> None:
        modes = compat.dispatch_modes()
        if not modes or modes[-1] is not self:
            return
        stack.callback(self.__enter__)
        here = self.local.here
        stack.callback(setattr, here, "suspended", False)
        here.suspended = True  # to compile a part, torch runs its backward as well
        self.__exit__(None, None, None)

    # Backwards

    def backward(self) -> Filled:
        """A context around a run of autograd's engine."""
        return filled(self._begin_backward)

    def _begin_backward(self, stack: ExitStack) -> None:
        here = self.local.here
        if not self.open or not self._trails or here.suspended or not self.listener.is_mine():
            return
        scopes, known = here.scopes, here.known
        stack.callback(here.trail.mark, scopes[-1] if scopes else None)
        stack.callback(setattr, here, "known", known)
        stack.callback(setattr, here, "scopes", scopes)
        here.scopes = []  # a model may call backward in its forward
        here.known = sequence_number()
        stack.enter_context(self.running())

    def _scope_of(self, here: Here, node: Any) -> Scope | None:
        """The call of a module in which an autograd node was made."""
        number = compat.node_number(node)
        if number >= NO_NUMBER:
            return self._owner(node.variable)
        if self._compiled_parts and node.name().startswith("CompiledFunction"):
            return None
        if here.numbers and number >= here.numbers[0]:  # this thread had entered a module then
            return here.trail.scope(number)
        # Made in another thread: with one candidate it is told, with several nobody can tell.
        others = [found for trail in self._trails if (found := trail.scope(number)) is not None]
        return others[0] if len(others) == 1 else None

    def _owner(self, parameter: torch.Tensor) -> Scope | None:
        """The scope of a parameter whose gradient is accumulated: its name stands for a module's."""
        found = self._owners.get(id(parameter))
        if found is None or found[0]() is not parameter:
            self._owners.clear()
            for name, found_module in self._modules:
                module = found_module()
                for own, held in () if module is None else module.named_parameters(name, recurse=False):
                    scope = Scope(own, 0, self.start(own, FORWARD))
                    self._owners.setdefault(id(held), (weakref.ref(held), scope))
            found = self._owners.setdefault(id(parameter), (weakref.ref(parameter), None))
        return found[1]

    # Operators

    @calls_the_model
    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        code = _frame(1).f_code  # of who runs the operator
        if (known_files.get(code.co_filename, True) and is_own(code)) or (unseen_threads and is_unseen()):
            return func(*args, **kwargs)
        here = self.local.here
        if scopes := here.scopes:
            scope = scopes[-1]
            if scope.muted:
                return func(*args, **kwargs)
            step = scope.step.next.get(id(func))
            if step is None:
                if (parts := self._parts(func, args, kwargs)) is not NotImplemented:
                    return parts
                step = self._new_step(scope.step, func)
            scope.step = step
        else:
            found = self._backward_step(here, func)
            if found is None:
                return func(*args, **kwargs)
            scope, step = found
        if not step.wanted or not self.open:
            return func(*args, **kwargs)
        if self._plain and here.quiet is None:
            out = func(*args, **kwargs)
            self._after(step, scope.call, out, None)
            return out
        return self._told(here, step, scope.call, func, types, args, kwargs)

    @calls_the_model
    def _told(self, here: Here, step: OpSite, call: int, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
        """Runs an operator that is told with its inputs or line of code, or below other modes."""
        listener, quiet = self.listener, here.quiet
        source = self._source(here, step.phase) if listener.sources else None
        before, after = listener.before, listener.after
        if quiet is not None and (not types or types == PLAIN):
            before, after = partial(_told_in, quiet, before), partial(_told_in, quiet, after)
        if listener.inputs:
            before(step, call, tensors_of(args, kwargs), source)
        out = func(*args, **kwargs)
        after(step, call, out, source)
        return out

    def _parts(self, func: Any, args: Any, kwargs: Any) -> Any:
        if func in self._whole:
            return NotImplemented
        parts = in_parts(self, func, args, kwargs)
        if parts is NotImplemented:
            self._whole.add(func)
        return parts

    def _new_step(self, before: OpSite, func: Any) -> OpSite:
        known = self._known.get((func, before.phase))
        if known is None:
            operator = operator_of(func)
            known = operator, self.listener.wants(operator, before.phase)
            self._known[func, before.phase] = known
        # By its id, for the hash of an operator is a function of Python; `_known` keeps the operator alive.
        return before.then(id(func), known[0], wanted=known[1])

    def _backward_step(self, here: Here, func: Any) -> tuple[Scope, OpSite] | None:
        node = current_node()
        if node is None:
            return None
        scope = self._scope_of(here, node)
        if (next_number := sequence_number()) > here.known:
            # With create_graph: nodes of a second derivative are of the call whose backward makes them.
            here.trail.mark(scope, here.known)
            here.known = next_number
        if scope is None:
            return None
        if is_repeating(node):
            here.trail.mark(scope)  # a recomputation of code outside of any module
            return None
        task = graph_task()
        if scope.backward is None or scope.task != task:
            scope.backward, scope.task = self.start(scope.module, BACKWARD), task
        step = scope.backward.next.get(id(func)) or self._new_step(scope.backward, func)
        scope.backward = step
        return scope, step

    def _source(self, here: Here, phase: str) -> str | None:
        trail = here.trail
        if phase == FORWARD:
            line = current_line()
            trail.mark_line(line)
            return line
        node = current_node()
        return None if node is None else trail.line(compat.node_number(node))


def _told_in(quiet: Callable[[], Any], tell: Callable[..., None], *told: Any) -> None:
    with quiet():
        tell(*told)


def tensors_of(args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[torch.Tensor]:
    """The tensors among the arguments of an operator, in order."""
    found: list[torch.Tensor] = []
    for value in (*args, *kwargs.values()) if kwargs else args:
        if isinstance(value, torch.Tensor):
            found.append(value)
        elif type(value) not in SINGLE:
            found += leaves(value, torch.Tensor)
    return found


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
