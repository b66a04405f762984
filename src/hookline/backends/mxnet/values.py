"""Values: arrays of MXNet copied, moved, compared and handed to numpy."""

from __future__ import annotations

import re
from typing import Any

import mxnet
import numpy as np
from mxnet import autograd
from numpy.typing import NDArray

from hookline.backends.mxnet import compat
from hookline.backends.nouns import Tensor
from hookline.errors import InvalidArgument

_BFLOAT16 = np.dtype([("bfloat16", np.uint16)])  # what MXNet has for it: numpy has nothing

_CONTEXT = re.compile(r"(cpu|gpu|cpu_pinned|cpu_shared)(?:[(:](\d+)\)?)?")


def snapshot(tensor: Tensor, device: Any = None, dtype: Any = None) -> Any:
    """A copy that no later operation can change, without history."""
    tensor = tensor.detach()
    if dtype is not None and is_float(tensor):  # token ids and masks stay what they are
        tensor = tensor.astype(dtype)  # a copy, even where the dtype is the same
    elif type(tensor) is compat.NDArray:
        tensor = mxnet.nd.identity(tensor)  # half the time of copy()
    else:
        tensor = tensor.copy()
    return tensor if device is None else tensor.as_in_context(device)


def host(tensor: Tensor) -> NDArray[Any]:
    """The values as a numpy array of their own; of a sparse tensor with its zeros, of bfloat16 as float32."""
    values: NDArray[Any] = tensor.asnumpy()
    if values.dtype != _BFLOAT16:
        return values
    bits: NDArray[Any] = values.view(np.uint16).astype(np.uint32) << np.uint32(16)
    return bits.view(np.float32)


def is_float(tensor: Tensor) -> bool:
    """Whether a tensor has numbers with fractions."""
    dtype = np.dtype(tensor.dtype)
    return dtype.kind == "f" or bool(dtype == _BFLOAT16)


def dtype_name(dtype: Any) -> str:
    """The name of an array's dtype."""
    return "bfloat16" if np.dtype(dtype) == _BFLOAT16 else str(np.dtype(dtype).name)


def from_host(array: NDArray[Any]) -> Any:
    """An array of MXNet with a copy of these values; complex numbers and 16-bit integers it has none of."""
    make = mxnet.np.array if mxnet.util.is_np_array() else mxnet.nd.array
    return make(array, dtype=array.dtype)


def fitted(value: Any, old: Any) -> Any:
    """`value` on the device and in the dtype of `old`."""
    value = value.as_in_context(old.context)
    return value if value.dtype == old.dtype else value.astype(old.dtype)


def unlike(new: Any, old: Any) -> str:
    """Why `new` can't stand in for `old`; empty if it can."""
    if new.shape != old.shape:
        return f"expected shape {tuple(old.shape)}, got {tuple(new.shape)}"
    if new.dtype != old.dtype:
        return f"expected {dtype_name(old.dtype)}, got {dtype_name(new.dtype)}"
    return "" if new.context == old.context else f"expected an array on {old.context}, got one on {new.context}"


def nbytes(tensor: Tensor) -> int:
    """The bytes that a tensor's elements take."""
    return int(tensor.size) * int(np.dtype(tensor.dtype).itemsize)


def context(device: Any) -> Any:
    """A context of MXNet from one, from its name ("cpu", "gpu(1)"), or None."""
    if device is None or isinstance(device, mxnet.Context):
        return device
    if isinstance(device, str) and (found := _CONTEXT.fullmatch(device)):
        return mxnet.Context(found[1], int(found[2] or 0))
    raise InvalidArgument(f"device={device!r} is no context of MXNet; give mx.cpu(), 'cpu' or 'gpu(0)', say.")


def dtype(dtype: Any) -> str | None:
    """The name of a dtype from one of numpy or its name, or None."""
    try:
        return None if dtype is None else str(np.dtype(dtype).name)
    except TypeError:
        raise InvalidArgument(
            f"dtype={dtype!r} is no dtype of MXNet; give 'float16' or numpy.float16, say."
        ) from None


def write_weight(tensor: Tensor, data: Any) -> None:
    """Puts other numbers into the memory of an array, outside of any graph."""
    with autograd.pause(train_mode=autograd.is_training()):
        tensor[:] = data
