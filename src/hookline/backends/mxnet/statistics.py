"""Statistics: where the values of an array of MXNet lie, for the C kernel. All else goes through numpy."""

from __future__ import annotations

import numpy as np

from hookline.backends import arrays
from hookline.backends.mxnet import compat
from hookline.backends.nouns import Tensor
from hookline.backends.protocol import Address


def address(tensor: Tensor, strided: bool = False) -> Address | None:
    """Where the values lie; None where the C kernel can't read them."""
    if not isinstance(tensor, compat.NDArray):
        return arrays.address(tensor, strided)
    name = np.dtype(tensor.dtype).name
    if strided or name not in arrays.FLOATS or tensor.stype != "default" or tensor.context.device_type != "cpu":
        return None
    if tensor.ndim > 2 and compat.has_layouts_of_its_own():
        # Asked for its address, oneDNN brings an array into the plain layout, for which the next operator
        # may choose another kernel. A copy has no such effect.
        return None
    pointer = compat.data_pointer(tensor)
    return None if pointer == 0 else (pointer, int(tensor.size), name, None)
