"""Values: copies of tensors that nothing can change later.

`asnumpy` looks at a tensor's own memory, so what is kept is a copy of it.
"""

from __future__ import annotations

from typing import Any

import mindspore as ms
import numpy as np
from mindspore import Tensor, ops
from numpy.typing import NDArray

from hookline.errors import InvalidArgument


def host(tensor: Tensor) -> NDArray[Any]:
    """The values, in the tensor's own memory where that is the host's."""
    found: NDArray[Any] = tensor.asnumpy()
    return found


def from_host(array: NDArray[Any]) -> Tensor:
    """A tensor with these values in memory of its own."""
    return Tensor.from_numpy(np.array(array, order="C"))


def snapshot(tensor: Tensor, device: Any = None, dtype: Any = None) -> Tensor:
    """A copy in the host's memory that no later operation can change, without history."""
    copy = from_host(host(tensor))
    return copy.astype(dtype) if dtype is not None and is_float(copy) else copy


def detached(tensor: Tensor) -> Tensor:
    """The same values without history."""
    return ops.stop_gradient(tensor)


def fitted(value: Tensor, old: Tensor) -> Tensor:
    """`value` in the dtype of `old`."""
    return value if value.dtype == old.dtype else value.astype(old.dtype)


def write_weight(tensor: Any, data: Tensor) -> None:
    """Has a parameter hold other numbers."""
    tensor.set_data(data)


def dtype_of(dtype: Any) -> Any:
    """A MindSpore dtype from one, from its name, or None."""
    found = getattr(ms, dtype, None) if isinstance(dtype, str) else dtype
    if (found is None and dtype is None) or isinstance(found, type(ms.float32)):
        return found
    raise InvalidArgument(f"dtype={dtype!r} is no MindSpore dtype; give mindspore.float16 or 'float16', say.")


def is_float(tensor: Tensor) -> bool:
    """Whether a tensor has numbers with fractions."""
    return "Float" in str(tensor.dtype)
