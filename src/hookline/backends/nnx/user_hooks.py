"""User hooks: those of users in compiled code.

A hook that returns something replaces values, so it has to be part of the code: it is traced, and must be written
in JAX. A hook that returns nothing looks, and is called with real values each time the code runs, from a callback.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

import jax
from flax import nnx

from hookline.backends.nnx.compat import is_opaque, tracing
from hookline.backends.nnx.events import call_back, failures, thread
from hookline.backends.nnx.leaves import Array
from hookline.backends.nnx.module_taps import live, post_in
from hookline.backends.nnx.returns import never_returns
from hookline.backends.nouns import Module
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


class TracedHook:
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


def original_of(module: Module) -> Any:
    """The module that a traced copy was made of, where that is known; else the module itself."""
    post = post_in(type(module))
    original = None if post is None else post.module()
    return module if original is None else original
