"""Compat: what NNX and JAX tell only through names that they may change; each has a test."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

import jax
from flax import nnx
from jax._src import core
from jax.extend.core import get_opaque_trace_state

with jax.ensure_compile_time_eval():
    _CLEAN = get_opaque_trace_state(convention="nnx")


def tracing() -> bool:
    """Whether a transform (jit, grad, vmap, ...) is running this code now."""
    return bool(get_opaque_trace_state(convention="nnx") != _CLEAN)


def outermost_trace() -> Any:
    """The object of the outermost transform that is running this code; everything traced in it is one program."""
    trace = core.trace_ctx.trace
    while not isinstance(above := getattr(trace, "parent_trace", None), (core.EvalTrace, type(None))):
        trace = above
    return trace


def in_checkpoint() -> bool:
    """Whether the code that is traced now runs again in the backward (jax.checkpoint, nnx.remat)."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        if frame.f_globals.get("__name__") == "jax._src.ad_checkpoint":
            return True
        frame = frame.f_back
    return False


def attributes(node: Any) -> Iterator[tuple[str, Any]]:
    """The attributes that a user gave a Module or another Pytree of NNX, in their order."""
    for name, value in vars(node).items():
        if not name.startswith("_pytree__"):
            yield name, value


def is_symbolic_zero(cotangent: Any) -> bool:
    """Whether a custom_vjp rule was handed "no gradient" in place of an array."""
    return isinstance(cotangent, jax.custom_derivatives.SymbolicZero)


def raw(variable: nnx.Variable[Any]) -> Any:
    """A Variable's array, without its on-get hooks."""
    return variable.get_raw_value()


def is_opaque(array: Any) -> bool:
    """Whether an array is of a type without numbers, as random keys are."""
    return bool(jax.dtypes.issubdtype(array.dtype, jax.dtypes.extended))


def swapped_value(variable: nnx.Variable[Any], value: Any) -> Callable[[], None]:
    """Has a Variable hold another array until the returned function is called; NNX takes it for no change."""
    before = variable.get_raw_value()
    object.__setattr__(variable, "_raw_value", value)

    def restore() -> None:
        object.__setattr__(variable, "_raw_value", before)

    return restore
