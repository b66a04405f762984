"""Hosting: users' hooks in compiled code.

A hook that returns something replaces values, so it has to be part of the code: it is traced, and must be written in
JAX. A hook that returns nothing looks, and is called with real values each time the code runs, from a callback.
"""

from __future__ import annotations

import dis
import types
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx

from hookline.backends.nnx.compat import is_opaque, tracing
from hookline.backends.nnx.events import failures
from hookline.backends.nnx.leaves import Array
from hookline.backends.nnx.posts import post_in
from hookline.backends.tap import Label
from hookline.errors import HookError
from hookline.trees import leaves, map_leaves

_NEEDS_VALUES = (
    jax.errors.ConcretizationTypeError,
    jax.errors.TracerArrayConversionError,
    jax.errors.TracerBoolConversionError,
    jax.errors.TracerIntegerConversionError,
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
        args = tuple(self._lasting(arg) if isinstance(arg, nnx.Module) else arg for arg in args)
        found = list(leaves(args, Array))
        keys = [is_opaque(leaf) for leaf in found]
        # Not the tracers: this outlives the trace.
        numbers = iter(range(len(found)))
        template = map_leaves(lambda _: _Number(next(numbers)), args, Array)

        def call(*values: Any) -> None:
            try:
                hook(*map_leaves(lambda place: values[place.index], template, _Number))
            except Exception as error:
                failed = hook_error(label, hook, error)
                failures.add(failed)
                raise failed from error

        jax.debug.callback(
            call, *(jax.random.key_data(x) if key else jnp.asarray(x) for x, key in zip(found, keys, strict=True))
        )


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
    """Whether a function certainly returns nothing but None: it has no `return` with a value.

    >>> never_returns(lambda x: print(x)), never_returns(lambda x: x)
    (False, False)
    >>> def looks(x):
    ...     print(x)
    >>> never_returns(looks)
    True
    """
    function = hook.__func__ if isinstance(hook, types.MethodType) else hook
    code = getattr(function, "__code__", None)
    if code is None or code.co_flags & (0x20 | 0x80 | 0x200):  # generators and coroutines
        return False
    steps = list(dis.get_instructions(code))
    for before, step in zip([None, *steps], steps, strict=False):
        if step.opname == "RETURN_CONST" and step.argval is not None:
            return False
        if step.opname == "RETURN_VALUE" and not (
            before is not None and before.opname == "LOAD_CONST" and before.argval is None
        ):
            return False
    return True


def original_of(module: Any) -> Any:
    """The module that a traced copy was made of, where that is known; else the module itself."""
    post = post_in(type(module))
    original = None if post is None else post.module()
    return module if original is None else original
