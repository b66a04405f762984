"""Arrays: where the values of a numpy array lie, for the C kernel; and its statistics where that is missing."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hookline import bins
from hookline.backends.nouns import Tensor
from hookline.backends.protocol import Address
from hookline.bins import HIGHEST, LOWEST, MANTISSA_BITS, SIDE
from hookline.rows import HEADER

Array = NDArray[Any]

FLOATS = ("float32", "float64", "float16", "bfloat16")
MAX_DIMS = 8


def address(array: Tensor, strided: bool = False) -> Address | None:
    """Where the values of an array lie; None where the C kernel can't read them, or where it is no array."""
    if not isinstance(array, np.ndarray) or array.dtype.name not in FLOATS or not array.dtype.isnative:
        return None
    if not strided and array.flags.c_contiguous:
        return array.ctypes.data, array.size, array.dtype.name, None
    if array.ndim > MAX_DIMS or any(step % array.itemsize for step in array.strides):
        return None
    steps = tuple(step // array.itemsize for step in array.strides)
    return array.ctypes.data, array.size, array.dtype.name, (array.shape, steps)


def reducible(array: Array) -> Array:
    """An array of floats of the same values; of complex numbers their absolute values.

    >>> reducible(np.array([3 + 4j])), reducible(np.array([1, 2])).dtype
    (array([5.]), dtype('float64'))
    """
    if array.dtype.name in FLOATS:
        return array
    if array.dtype.kind == "c":
        return np.abs(array)
    return array.astype(np.float32 if array.dtype.itemsize <= 2 else np.float64)


def words(array: Array, histogram: bool, dim: int | None = None) -> NDArray[np.int64]:
    """A row of 64-bit words: the bits of mean, m2, min and max, five counts, and the histogram if wanted.

    With `dim` one row for each of its indices.
    """
    if dim is None:
        return _row(array.reshape(-1), histogram)
    rows = [_row(part.reshape(-1), histogram) for part in np.moveaxis(array, dim, 0)]
    return np.stack(rows) if rows else np.zeros((0, HEADER + bins.COUNT * histogram), np.int64)


def _row(own: Array, histogram: bool) -> NDArray[np.int64]:
    limit = own.dtype.type(0.05)  # in the values' own dtype, so that one filled with 0.05 is near zero in each
    x = own.astype(np.float64)
    finite = x[np.isfinite(x)]
    with np.errstate(over="ignore"):  # squares beyond float64 are honestly infinite, but the mean is not
        largest = max(float(np.abs(finite).max(initial=0.0)), 1.0)
        scale = 2.0**-600 if largest > 2.0**500 else 1.0
        mean = float((finite * scale).mean()) / scale if len(finite) else 0.0
        m2 = float(((finite - mean) ** 2).sum())
    head = np.array([mean, m2, finite.min(initial=math.inf), finite.max(initial=-math.inf)], np.float64)
    near = int((np.abs(own) <= limit).sum())
    counts = [len(finite), int((x == 0).sum()), near, int(np.isnan(x).sum()), int(np.isinf(x).sum())]
    parts = [head.view(np.int64), np.array(counts, np.int64)]
    if histogram:
        parts.append(np.bincount(_bins(finite), minlength=bins.COUNT).astype(np.int64))
    return np.concatenate(parts)


def _bins(finite: NDArray[np.float64]) -> NDArray[np.int64]:
    """The number of each value's bin, by the bits of the float64."""
    bits = finite.view(np.int64)
    exponent = (bits >> 52 & 0x7FF) - 1023
    fraction = bits >> (52 - MANTISSA_BITS) & ((1 << MANTISSA_BITS) - 1)
    magnitude = 2 + ((exponent - LOWEST) << MANTISSA_BITS) + fraction
    magnitude = np.where(exponent < LOWEST, 1, np.where(exponent > HIGHEST, SIDE, magnitude))
    magnitude = np.where(finite == 0, 0, magnitude)
    return np.where(bits < 0, SIDE - magnitude, SIDE + magnitude)
