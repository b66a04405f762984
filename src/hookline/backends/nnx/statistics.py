"""Statistics as operations of JAX: they run where the array is, inside compiled code too, and only a row leaves.

Programs of JAX have no 64-bit integers unless asked to, so a row travels as 32-bit words: four doubles as pairs,
then counts. `unpacked` makes of it what `Stats.from_words` reads.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from numpy.typing import NDArray

from hookline import bins
from hookline.backends.nnx.compat import is_opaque
from hookline.backends.nouns import Tensor
from hookline.bins import HIGHEST, LOWEST, MANTISSA_BITS, SIDE

HEAD, COUNTS = 8, 5
FLOATS = {"float16", "bfloat16", "float32", "float64"}


def numbers_of(array: Tensor) -> Any:
    """The array as floats of the same values: whole numbers widened, complex ones as their absolute values.

    It is no part of any derivative.
    """
    array = jax.random.key_data(array) if is_opaque(array) else lax.stop_gradient(array)
    if jnp.issubdtype(array.dtype, jnp.complexfloating):
        return jnp.abs(array)
    if str(array.dtype) in FLOATS:
        return array
    exact = jnp.issubdtype(array.dtype, jnp.floating) or array.dtype.itemsize <= 2
    with jax.enable_x64(True):
        return array.astype(jnp.float32 if exact else jnp.float64)


def packed(array: Tensor, histogram: bool, dim: int | None = None) -> Any:
    """A row of 32-bit words with the statistics of all values; with `dim` one for each of its indices."""
    array = numbers_of(array)
    if dim is None:
        return _row(array.reshape(-1), histogram)
    slices = jnp.moveaxis(array, dim, 0)
    return jax.vmap(partial(_row, histogram=histogram))(slices.reshape(len(slices), -1))


def scalars(functions: Sequence[Callable[..., Any]], array: Tensor) -> Any:
    """The results of `function(array, jax.numpy)`, as pairs of 32-bit words."""
    array = numbers_of(array)
    found = [jnp.asarray(function(array, jnp)) for function in functions]
    with jax.enable_x64(True):
        return _words(jnp.stack([value.reshape(()).astype(jnp.float64) for value in found]))


def unpacked(words: NDArray[Any]) -> NDArray[np.int64]:
    """Rows of 32-bit words, or pairs of them, as rows of 64-bit ones."""
    words = np.ascontiguousarray(words)
    if words.shape[-1] == 2:
        return words.view(np.int64)[..., 0]
    head = np.ascontiguousarray(words[..., :HEAD]).view(np.int64)
    return np.concatenate([head, words[..., HEAD:].astype(np.int64)], axis=-1)


def _words(doubles: Any) -> Any:
    return lax.bitcast_convert_type(doubles, jnp.uint32)


def _row(x: Any, histogram: bool) -> Any:
    with jax.enable_x64(True):
        bad = ~jnp.isfinite(x)
        near = jnp.abs(x) <= jnp.asarray(0.05, x.dtype)
        magnitude, negative = _from_double(x) if x.dtype == jnp.float64 else _from_single(x)
        marks = [mark.astype(jnp.uint32) for mark in (~bad, magnitude == 0, near, jnp.isnan(x), jnp.isinf(x))]
        wide = x.astype(jnp.float64)
        lows, highs = jnp.where(bad, math.inf, wide), jnp.where(bad, -math.inf, wide)
        wide, scale = jnp.where(bad, 0.0, wide), jnp.float64(1.0)
        if x.dtype == jnp.float64:
            # Squares beyond float64 are honestly infinite, but the mean is not: it is taken at another scale.
            largest = jnp.abs(wide).max(initial=0.0)
            scale = jnp.where(largest > 2.0**500, 2.0**-600, 1.0)
            wide = wide * scale
        # One reduction of eight: a kernel for each would take a compiler eight times as long.
        *counts, low, high, total = lax.reduce(
            (*marks, lows, highs, wide),
            (*[jnp.uint32(0)] * COUNTS, jnp.float64(math.inf), jnp.float64(-math.inf), jnp.float64(0.0)),
            _together,
            (0,),
        )
        mean = total / jnp.maximum(counts[0], 1).astype(jnp.float64)
        apart = jnp.where(bad, 0.0, wide - mean)
        m2 = (apart * apart).sum()
        head = _words(jnp.stack([mean / scale, m2 / scale / scale, low, high])).reshape(-1)
        parts = [head, jnp.stack(counts)]
        if histogram:
            parts.append(_histogram(magnitude, negative, bad))
        return jnp.concatenate(parts)


def _together(found: Any, new: Any) -> Any:
    *counts, low, high, total = zip(found, new, strict=True)
    return (*(a + b for a, b in counts), jnp.minimum(*low), jnp.maximum(*high), total[0] + total[1])


def _histogram(magnitude: Any, negative: Any, bad: Any) -> Any:
    """The counts of the bins, by the bits of the values."""
    number = jnp.where(negative, SIDE - magnitude, SIDE + magnitude)
    number = jnp.where(bad, bins.COUNT, number)  # cut off below
    return jnp.zeros(bins.COUNT + 1, jnp.uint32).at[number].add(jnp.uint32(1))[: bins.COUNT]


def _from_double(x: Any) -> tuple[Any, Any]:
    """The bin of each |x| counted from zero's, and whether x is negative."""
    words = lax.bitcast_convert_type(x, jnp.uint32)
    low, high = words[..., 0], words[..., 1]
    exponent = (high >> 20 & 0x7FF).astype(jnp.int32) - 1023
    fraction = (high >> (20 - MANTISSA_BITS) & ((1 << MANTISSA_BITS) - 1)).astype(jnp.int32)
    magnitude = 2 + ((exponent - LOWEST) << MANTISSA_BITS) + fraction
    small = jnp.minimum(low | high << 1, 1).astype(jnp.int32)  # 0 for zeros, 1 for what no single has
    return jnp.where(exponent < LOWEST, small, jnp.where(exponent > HIGHEST, SIDE, magnitude)), high >> 31 == 1


def _from_single(x: Any) -> tuple[Any, Any]:
    if x.dtype == jnp.bfloat16:
        bits = lax.bitcast_convert_type(x, jnp.uint16).astype(jnp.uint32) << 16
    else:
        bits = lax.bitcast_convert_type(x.astype(jnp.float32), jnp.uint32)
    field, mantissa = (bits >> 23 & 0xFF).astype(jnp.int32), (bits & 0x7FFFFF).astype(jnp.int32)
    # Below the smallest normal number the exponent is that of the mantissa's first bit. A zero has no bit at all
    # and comes out as bin 0, without a comparison: a compiler would make one of floats, which flushes the small.
    lead = 31 - lax.clz(mantissa)
    exponent = jnp.where(field == 0, lead - 149, field - 127)
    fraction = jnp.where(
        field == 0, jnp.where(lead < 1, 0, mantissa >> jnp.maximum(lead - 1, 0) & 1), mantissa >> 22
    )
    return 2 + ((exponent - LOWEST) << MANTISSA_BITS) + fraction, bits >> 31 == 1
