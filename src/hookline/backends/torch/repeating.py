"""Repeating: what running a model several times needs, and its values as arrays of numpy."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from hookline.backends.torch.compat import is_fake, is_transforming


def random_state() -> Any:
    """The state of torch's random numbers on the CPU and, where it is in use, on CUDA."""
    cuda = torch.cuda.get_rng_state_all() if torch.cuda.is_initialized() else []  # type: ignore[no-untyped-call]
    return [torch.get_rng_state(), *cuda]


def restore_random(state: Any) -> None:
    """Goes on with the random numbers of `state`."""
    torch.set_rng_state(state[0])
    if len(state) > 1:
        torch.cuda.set_rng_state_all(state[1:])


def same_random(one: Any, other: Any) -> bool:
    """Whether two states give the same random numbers."""
    return len(one) == len(other) and all(map(torch.equal, one, other))


def graph_free() -> AbstractContextManager[Any]:
    """A block in which no graph is made."""
    return torch.no_grad()


def dtype_of(tensor: torch.Tensor) -> str:
    """The name of a tensor's dtype: "float32"."""
    return str(tensor.dtype).removeprefix("torch.")


def is_readable(tensor: torch.Tensor) -> bool:
    """Whether `host` can give its values: not inside of torch.func's transforms, where it is one of many."""
    return not (is_transforming() or tensor.is_nested or tensor.is_meta or is_fake(tensor))


def host(tensor: torch.Tensor) -> NDArray[Any]:
    """The values as a numpy array, in the tensor's own memory where that is possible; bfloat16 as float32."""
    plain = tensor.detach()
    if plain.is_quantized:
        plain = plain.dequantize()
    if plain.layout is not torch.strided:
        plain = plain.to_dense()
    plain = plain.cpu().resolve_conj().resolve_neg()
    try:
        array: NDArray[Any] = plain.numpy()
    except TypeError:  # a dtype that numpy has not
        array = plain.float().numpy()
    return array


def from_host(array: NDArray[Any]) -> torch.Tensor:
    """A tensor with a copy of these values."""
    return torch.from_numpy(np.array(array))
