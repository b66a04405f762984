"""Compat: what NNX and JAX tell only through names that they may change; each has a test."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import jax
from flax import nnx
from jax._src import core, source_info_util
from jax._src.interpreters import ad, batching
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


def in_forward_mode(array: Any) -> bool:
    """Whether `jvp` carries a derivative along with this array, and no reverse mode takes it on before."""
    while isinstance(array, batching.BatchTracer):
        array = array.val
    return isinstance(array, ad.JVPTracer)


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


def raw_value(tensor: nnx.Variable[Any]) -> Any:
    """The array that a Variable holds."""
    return tensor.get_raw_value()


def set_raw_value(tensor: nnx.Variable[Any], data: Any) -> None:
    """Has a Variable hold another array; NNX takes it for no change."""
    object.__setattr__(tensor, "_raw_value", data)


def swapped_value(variable: nnx.Variable[Any], value: Any) -> Callable[[], None]:
    """Has a Variable hold another array until the returned function is called."""
    before = raw_value(variable)
    set_raw_value(variable, value)
    return lambda: set_raw_value(variable, before)


_CALLS = {
    "jit": "jaxpr",
    "pjit": "jaxpr",
    "closed_call": "call_jaxpr",
    "core_call": "call_jaxpr",
    "custom_jvp_call": "call_jaxpr",
    "custom_vjp_call": "call_jaxpr",
    "custom_vjp_call_jaxpr": "fun_jaxpr",
    "checkpoint": "jaxpr",
    "remat2": "jaxpr",
}


def inner_jaxpr(equation: Any) -> Any:
    """The closed jaxpr that a primitive only calls, as jit does; None for one that computes something itself."""
    found = equation.params.get(_CALLS.get(equation.primitive.name, ""))
    if found is None or hasattr(found, "consts"):
        return found
    return jax.extend.core.ClosedJaxpr(found, ())


def bound(equation: Any, values: list[Any]) -> list[Any]:
    """What a primitive gives for these values, in a list."""
    with equation.ctx.manager:
        found = equation.primitive.bind(*values, **equation.primitive.get_bind_params(equation.params))
    return list(found) if equation.primitive.multiple_results else [found]


def source_line(equation: Any) -> str | None:
    """`model.py:12` of the user's code that a primitive comes from."""
    frame = source_info_util.user_frame(equation.source_info.traceback)
    return None if frame is None else f"{frame.file_name.rpartition('/')[2]}:{frame.start_line}"
