"""Leaves: what counts as a tensor of JAX, and what stands in for one whose values were not sent."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from hookline.backends.nouns import Tensor


class NotSent:
    """An array of which only shape and dtype are known here; with `rows`, also its statistics.

    `rows` are what `statistics.packed` gave, by (histogram, dim); `numbers` the results of functions, by these.
    """

    stands_in_for = "nnx"

    def __init__(self, shape: tuple[int, ...], dtype: Any) -> None:
        self.shape, self.dtype = shape, dtype
        self.rows: dict[tuple[bool, int | None], Any] = {}
        self.numbers: dict[tuple[Any, ...], Any] = {}

    @classmethod
    def of(cls, array: Tensor) -> NotSent:
        return cls(tuple(array.shape), array.dtype)

    @property
    def ndim(self) -> int:
        return len(self.shape)

    def __repr__(self) -> str:
        return f"<{self.dtype} {self.shape}, values not sent>"


class _AnyArray(type):
    def __instancecheck__(cls, thing: Any) -> bool:
        return isinstance(thing, (jax.Array, np.ndarray, NotSent, nnx.Variable))


class Array(metaclass=_AnyArray):
    """The type of tensors: arrays of JAX, traced or not, arrays of numpy, Variables, and stand-ins."""


def is_float(array: Tensor) -> bool:
    """Whether an array has a gradient at all."""
    return bool(jnp.issubdtype(array.dtype, jnp.inexact))


def array_of(thing: Any) -> Any:
    """The array in a Variable; anything else as it is."""
    return thing.get_raw_value() if isinstance(thing, nnx.Variable) else thing
