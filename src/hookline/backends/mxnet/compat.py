"""Every private name of MXNet that hookline uses, and why.

Checked on MXNet 1.9.1, the last release. Each entry has a test in test_mxnet_private.py.
"""

from __future__ import annotations

import ctypes
import functools
import os
from collections.abc import Callable
from typing import Any

import mxnet
from mxnet.base import _LIB, MXCallbackList, MXNetError, NDArrayHandle, c_handle_array, check_call, py_str
from mxnet.ndarray import register

NDArray: Any = mxnet.nd.NDArray
NumpyArray: Any = mxnet.np.ndarray

# Blocks


def children(block: Any) -> dict[str, Any]:
    """The blocks directly below; Gluon has no public way to name them."""
    found: dict[str, Any] = block._children
    return found


def own_parameters(block: Any) -> dict[str, Any]:
    """The block's own Parameters by attribute name; `params` has them by a name that is global."""
    found: dict[str, Any] = block._reg_params
    return found


def layout(block: Any) -> str:
    """The order of axes of a convolution: "NCHW", "NHWC"; a block tells nobody."""
    return str(block._kwargs["layout"])


def is_state(parameter: Any) -> bool:
    """Whether a Parameter is no weight but a running statistic, as those of BatchNorm."""
    return not parameter._differentiable


def is_initialized(parameter: Any) -> bool:
    return parameter._data is not None


def parameters_of(trainer: Any) -> list[Any]:
    """The Parameters that a Trainer updates."""
    found: list[Any] = trainer._params
    return found


def with_zeros(parameter: Any) -> None:
    """Has a Parameter filled with zeros: now, or once its shape is known. No random number is drawn."""
    zero = mxnet.init.Zero()
    context = parameter._deferred_init[1] if parameter._deferred_init else [mxnet.cpu()]
    parameter._deferred_init = ()
    parameter.init = zero
    parameter.initialize(init=zero, ctx=context, default_init=zero, force_reinit=True)


# Hybridized blocks


def is_hybrid(block: Any) -> bool:
    """Whether the block can be hybridized."""
    return isinstance(block, mxnet.gluon.HybridBlock)


def is_active(block: Any) -> bool:
    """Whether a hybrid block runs as a compiled graph."""
    return bool(block._active) or has_no_code(block)


def has_no_code(block: Any) -> bool:
    """Whether a block is nothing but a graph: imported from a file, it can't run as it is written."""
    return isinstance(block, mxnet.gluon.SymbolBlock)


def set_active(block: Any, active: bool) -> None:
    """As `hybridize`, for this block alone and without throwing its compiled graph away."""
    block._active = active


def hybridizing(block: Any) -> Any:
    """The very object that the last call of `hybridize` left; an empty list where there was none."""
    return block._flags


def partitioned_for(block: Any) -> str | None:
    """The name of the backend that `optimize_for` or `hybridize(backend=...)` rewrites the graph for."""
    name: str | None = block._backend
    return name


def flags(block: Any) -> dict[str, Any]:
    """What `hybridize` was told: static_alloc, static_shape and so on."""
    return dict(block._flags)


def compiled_symbol(block: Any) -> Any:
    """The graph of a hybridized block that has run."""
    return block._cached_graph[1]


# Op hooks

_retired: list[Any] = []


def op_hook(block: Any) -> Any:
    """The callback for operators, or None."""
    return block._callback


def monitors_all(block: Any) -> bool:
    return bool(block._monitor_all)


def monitor_all(block: Any, everything: bool) -> None:
    """Whether the callback gets the inputs of operators, too; counts from the next call on."""
    block._monitor_all = everything


def set_op_hook(block: Any, callback: Callable[[bytes, bytes, int], None]) -> Callable[[], None]:
    """Has `callback` called for each operator, until the returned function is called.

    C++ never lets go of a callback, so a compiled operation of its own gets it, made of the same graph; the one
    from before is put aside and comes back. `register_op_hook(None)` would leave the callback there.
    """
    before = block._cached_op, block._cached_graph, block._cached_op_args, block._monitor_all
    block._cached_op = None
    block._callback = callback

    def restore() -> None:
        block._callback = None
        op, graph, args, block._monitor_all = before
        if block._cached_op is not None:
            # A graph with this operation may run backward later: what C++ calls must still be there.
            _retired.append(getattr(block._cached_op, "_monitor_callback", None))
        if op is not None and block._cached_graph is graph:
            block._cached_op, block._cached_op_args = op, args
        else:
            block._clear_cached_op()

    return restore


# Operators that run one by one

INVOKE = register, "_imperative_invoke"
"""The one function that all operators of arrays are called by: its module and its name there."""


@functools.cache
def operator_name(handle: int) -> str:
    """The name of the operator that a handle stands for."""
    name = ctypes.c_char_p()
    check_call(_LIB.MXSymbolGetAtomicSymbolName(ctypes.c_void_p(handle), ctypes.byref(name)))
    return text(name.value or b"")


@functools.cache
def backward_operator(name: str) -> str:
    """What MXNet calls the backward of an operator; most have one of their own."""
    wanted = f"_backward_{name.removeprefix('_')}"
    return wanted if wanted in operator_names() else f"{name}_backward"


@functools.cache
def operator_names() -> frozenset[str]:
    """Every operator there is."""
    return frozenset(mxnet.operator.get_all_registered_operators())


# Arrays


def is_in_graph(array: Any) -> bool:
    """Whether a gradient may come to the array: it was marked, or computed from what was. Nothing else tells.

    MXNet puts what merely takes part in an operation into the graph as well, as a variable called null0, null1.
    """
    try:
        array._fresh_grad = array._fresh_grad
    except MXNetError:
        return False
    return not mxnet.autograd.get_symbol(array).name.startswith("null")


def data_pointer(array: Any) -> int:
    """The address of a dense array in the memory of this process, once its values are there."""
    array.wait_to_read()
    pointer = ctypes.c_void_p()
    check_call(_LIB.MXNDArrayGetData(array.handle, ctypes.byref(pointer)))
    return pointer.value or 0


@functools.cache
def has_layouts_of_its_own() -> bool:
    """Whether convolutions run by oneDNN, which keeps arrays in layouts that only it can read."""
    return mxnet.runtime.Features().is_enabled("MKLDNN") and os.environ.get("MXNET_MKLDNN_ENABLED", "1") != "0"


def wait_until_unused(array: Any) -> None:
    """Returns when nobody reads or writes the array any more; Python's `wait_to_read` leaves the readers out."""
    check_call(_LIB.MXNDArrayWaitToWrite(array.handle))


def owning(handle: int, kind: type = NDArray, *, writable: bool = False) -> Any:
    """The array of a handle that C++ gave away: freed with the array, leaked without one."""
    array = NDArray(ctypes.cast(handle, NDArrayHandle), writable=writable)
    return array.as_np_ndarray() if issubclass(kind, NumpyArray) else array


# Operations with a backward of one's own

_int, _pointer = ctypes.c_int, ctypes.c_void_p
BackwardEntry = ctypes.CFUNCTYPE(_int, _int, _int, ctypes.POINTER(_pointer), ctypes.POINTER(_int), _int, _pointer)
DeleteEntry = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p)
_PLAIN = ctypes.CFUNCTYPE(ctypes.c_int)


def callback_list(backward: Any, delete: Any, key: int) -> Any:
    """The structure by which C++ calls `backward` and `delete`, with `key` as their last argument."""
    functions = (_PLAIN * 2)(ctypes.cast(backward, _PLAIN), ctypes.cast(delete, _PLAIN))
    keys = (ctypes.c_void_p * 2)(key, key)
    return MXCallbackList(
        2, ctypes.cast(functions, ctypes.POINTER(_PLAIN)), ctypes.cast(keys, ctypes.POINTER(ctypes.c_void_p))
    )


def record_operation(inputs: list[Any], outputs: list[Any], callbacks: Any) -> None:
    """Tells autograd that `outputs` come from `inputs` by an operation with these callbacks."""
    check_call(
        _LIB.MXCustomFunctionRecord(
            len(inputs), c_handle_array(inputs), len(outputs), c_handle_array(outputs), ctypes.byref(callbacks)
        )
    )


text: Callable[[bytes], str] = py_str
