"""Hosting: users' hooks in compiled code.

A hook that returns something replaces values, so it has to be part of the code: it is traced, and must be written
in JAX. A hook that returns nothing looks, and is called with real values each time the code runs, from a callback.
"""

from __future__ import annotations

import dis
import inspect
import itertools
import types
import weakref
from collections import deque
from collections.abc import Callable
from typing import Any

import jax
from flax import nnx

from hookline.backends.nnx.compat import is_opaque, tracing
from hookline.backends.nnx.events import call_back, failures, thread
from hookline.backends.nnx.leaves import Array
from hookline.backends.nnx.posts import live, post_in
from hookline.backends.tap import Label
from hookline.errors import HookError
from hookline.trees import leaves, map_leaves

_NEEDS_VALUES = (
    jax.errors.ConcretizationTypeError,
    jax.errors.TracerArrayConversionError,
    jax.errors.TracerBoolConversionError,
    jax.errors.TracerIntegerConversionError,
)


_BOTH = (
    "reads numbers and returns a replacement. In compiled code it can do only one of them: return a value made by "
    "functions of jax.numpy alone, or return nothing, and look from a second hook"
)


class HostedHook:
    """A user's hook as taps call it."""

    def __init__(self, hook: Callable[..., Any], label: Label, lasting: Callable[[Any], Any]) -> None:
        self._hook, self._label, self._lasting = hook, label, lasting
        self._looks = never_returns(hook)
        self.__qualname__ = getattr(hook, "__qualname__", type(hook).__name__)

    def __call__(self, *args: Any) -> Any:
        if not tracing():
            return self._hook(*args)
        result = None
        if not self._looks:
            try:
                result = self._hook(*args)
            except _NEEDS_VALUES:
                self._looks = True  # it reads numbers, which are not there yet
        if result is None:
            self._sent(args)
        return result

    def _sent(self, args: tuple[Any, ...]) -> None:
        """Has the hook called with the values of `args` whenever the code that is traced now runs."""
        hook, label = self._hook, self._label
        # Programs are kept, and must not keep a model.
        args = tuple(weakref.ref(self._lasting(arg)) if isinstance(arg, nnx.Module) else arg for arg in args)
        found = list(leaves(args, Array))
        # Not the tracers: this outlives the trace.
        numbers = iter(range(len(found)))
        template = map_leaves(lambda _: _Number(next(numbers)), args, Array)

        def call(*values: Any) -> None:
            if label.placed_at and id(label) not in live:  # removed; the program does not know
                return
            given = map_leaves(lambda place: values[place.index], template, _Number)
            try:
                with thread.in_callback():
                    result = hook(*(arg() if isinstance(arg, weakref.ref) else arg for arg in given))
                failed = None if result is None else HookError(label.site, label.kind, _BOTH)
            except Exception as error:
                failed = hook_error(label, hook, error)
            if failed is not None:
                if label.placed_at:  # it has a handle, whose removal raises this error as it is
                    failures.add(label, failed)
                raise failed

        call_back(call, [jax.random.key_data(leaf) if is_opaque(leaf) else leaf for leaf in found])


class _Number:
    def __init__(self, index: int) -> None:
        self.index = index


def hook_error(label: Label, hook: Callable[..., Any], error: Exception) -> HookError:
    """The HookError for an exception in a hook."""
    name = getattr(hook, "__qualname__", type(hook).__name__)
    failed = HookError(label.site, label.kind, f"({name}) raised {type(error).__name__}: {error}")
    failed.__cause__ = error
    return failed


def never_returns(hook: Callable[..., Any]) -> bool:
    """Whether a function certainly returns nothing but None.

    It has no `return` with a value, or all it does is to print or to put something into a collection of Python's.
    A hook of which this can't be told is called once with traced values, to see.

    >>> seen = []
    >>> never_returns(lambda x: seen.append(x)), never_returns(lambda x: x * 2)
    (True, False)
    """
    function = hook.__func__ if isinstance(hook, types.MethodType) else hook
    if not isinstance(function, types.FunctionType) or function.__code__.co_flags & _SUSPENDS:
        return False
    steps = [step for step in dis.get_instructions(function) if step.opname not in _PRELUDE]
    if len(steps) > 3 and steps[-1].opname == "RETURN_VALUE" and steps[-2].opname in ("CALL", "CALL_FUNCTION"):
        return not any("JUMP" in step.opname for step in steps) and _gives_none(function, *steps[:2])
    ends = [(before, step) for before, step in itertools.pairwise(steps) if step.opname.startswith("RETURN_")]
    return bool(ends) and all(
        step.argval is None
        if step.opname == "RETURN_CONST"
        else before.opname == "LOAD_CONST" and before.argval is None
        for before, step in ends
    )


_SUSPENDS = inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR
_PRELUDE = {"RESUME", "COPY_FREE_VARS", "PUSH_NULL", "PRECALL", "CACHE"}
_FILLING: dict[Any, set[str]] = {
    list: {"append", "extend", "insert"},
    deque: {"append", "extend", "appendleft"},
    set: {"add", "update"},
    dict: {"update", "__setitem__"},
}


def _gives_none(function: types.FunctionType, first: dis.Instruction, second: dis.Instruction) -> bool:
    """Whether a function of one expression begins with the name of something whose call gives None."""
    if first.opname == "LOAD_GLOBAL" and first.argval == "print":
        return True
    known = {**function.__globals__, **inspect.getclosurevars(function).nonlocals}
    thing = known.get(first.argval) if first.opname in ("LOAD_GLOBAL", "LOAD_DEREF") else None
    return second.opname in ("LOAD_METHOD", "LOAD_ATTR") and second.argval in _FILLING.get(type(thing), set())


def original_of(module: Any) -> Any:
    """The module that a traced copy was made of, where that is known; else the module itself."""
    post = post_in(type(module))
    original = None if post is None else post.module()
    return module if original is None else original
