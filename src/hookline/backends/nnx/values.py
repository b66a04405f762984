"""Values: arrays of JAX copied, moved and read. None is written to, but a program may take over its memory."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from hookline.backends.nnx.compat import is_opaque
from hookline.backends.nnx.leaves import NotSent, array_of, is_float
from hookline.backends.nouns import Tensor
from hookline.errors import InvalidArgument


def snapshot(tensor: Tensor, device: Any = None, dtype: Any = None) -> Any:
    """A copy with memory of its own; `dtype` is for floats only."""
    array = array_of(tensor)
    if isinstance(array, NotSent):
        return array
    copied = jnp.array(array, copy=True)
    if dtype is not None and is_float(copied):
        copied = copied.astype(dtype)
    return copied if device is None else jax.device_put(copied, device)


def fitted(value: Any, old: Any) -> Any:
    """`value` in the dtype of `old`, and where `old` is."""
    array = jnp.asarray(array_of(value)).astype(old.dtype)
    home = getattr(old, "sharding", None)
    return array if home is None or isinstance(old, jax.core.Tracer) else jax.device_put(array, home)


def host(tensor: Tensor) -> NDArray[Any]:
    """The values as a numpy array, in the array's own memory where it is on the CPU."""
    array = array_of(tensor)
    return np.asarray(jax.random.key_data(array) if is_opaque(array) else array)


def device(wanted: Any) -> Any:
    """A device of JAX from one, from the name of its platform ("cpu"), or None."""
    if wanted is None or isinstance(wanted, (jax.Device, jax.sharding.Sharding)):
        return wanted
    try:
        return jax.devices(wanted)[0]
    except (RuntimeError, TypeError) as error:
        raise InvalidArgument(f"device={wanted!r} is no device of JAX: {error}") from None


def dtype(wanted: Any) -> Any:
    """A dtype from one, from its name, or None."""
    if wanted is None:
        return None
    try:
        return jnp.dtype(wanted)
    except TypeError:
        raise InvalidArgument(
            f"dtype={wanted!r} is no dtype of JAX; give jax.numpy.bfloat16 or 'bfloat16', say."
        ) from None
