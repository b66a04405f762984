"""Statistics of torch tensors: where their memory is, and the reduction by torch's own operations.

The latter serves devices and machines without the C kernel. It gives the same numbers, stays on the
device and waits for nothing; its rows are laid out as `_kernel.h` says.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from hookline import bins
from hookline.backends.arrays import MAX_DIMS
from hookline.backends.protocol import Address
from hookline.backends.torch import compat
from hookline.backends.torch.unseen import unseen
from hookline.backends.torch.values import EXCHANGE, laid_bare
from hookline.bins import HIGHEST, LOWEST, MANTISSA_BITS, SIDE
from hookline.errors import Unsupported
from hookline.rows import HEADER

Tensor = torch.Tensor

DTYPES = {
    torch.float32: "float32",
    torch.float64: "float64",
    torch.float16: "float16",
    torch.bfloat16: "bfloat16",
}
_EXACT_IN_FLOAT32 = {torch.bool, torch.uint8, torch.int8, torch.int16, torch.uint16}
_PLAIN = (Tensor, nn.Parameter)

CHUNK = 1 << 22
"""Values that are widened to float64 at a time, so that a large tensor does not take several times its memory."""


EXCHANGE_RULE = None if EXCHANGE is None else (EXCHANGE, _PLAIN, Tensor.is_neg)


def exchange_of(tensor: Tensor) -> object | None:
    """DLPack's table of C functions for a plain tensor; None for any other, and before torch had it."""
    return None if type(tensor) not in _PLAIN or tensor.is_neg() else EXCHANGE


def address(tensor: Tensor, strided: bool = False) -> Address | None:
    """Where the values of a CPU tensor lie; None where the C kernel can't read them."""
    if compat.tracer() is not None:
        with compat.aside():
            return address(tensor, strided)
    name = DTYPES.get(tensor.dtype)
    if name is None or not tensor.is_cpu or type(tensor) not in _PLAIN or tensor.layout is not torch.strided:
        return None
    if tensor.is_neg() or tensor.is_nested:  # the sign is to be turned when values are read; `reducible` refuses
        return None
    count = tensor.numel()
    if not strided and (tensor.is_contiguous() or _channels_last(tensor)):
        layout = None
    elif tensor.ndim > MAX_DIMS:
        return None
    else:
        layout = tuple(tensor.shape), tensor.stride()
    try:
        pointer = tensor.data_ptr()
    except RuntimeError:  # inside a transform of torch.func
        return None
    return None if pointer == 0 and count else (pointer, count, name, layout)


def side_by_side(after: Tensor, before: Tensor) -> tuple[Address, Address] | None:
    """Where both lie, if that is in the same way and without gaps; None elsewhere."""
    first, second = address(after), address(before)
    if first is None or second is None or first[1:] != second[1:] or first[3] is not None:
        return None
    return (first, second) if after.shape == before.shape and after.stride() == before.stride() else None


def _channels_last(tensor: Tensor) -> bool:
    # The kernel would find out that this memory has no gaps, too, at 2 us more for telling it the layout.
    return tensor.ndim == 4 and tensor.is_contiguous(memory_format=torch.channels_last)


def reducible(tensor: Tensor) -> Tensor:
    """A tensor of float16, bfloat16, float32 or float64 without history, of the same values.

    Whole numbers become floats; of complex numbers it is the absolute value. Unsupported where there
    are no values to look at (meta), or only some of them (sparse, nested). Inside torch.func's transforms it
    is the tensor that they wrap: all of a batch under vmap.
    """
    if nn.parameter.is_lazy(tensor):
        raise _unsupported("an uninitialized parameter", "it has no shape yet", "run the model once")
    if compat.is_seen(tensor):
        with laid_bare(tensor) as bare:
            return _as_floats(bare)
    return _as_floats(tensor.detach())


def _as_floats(tensor: Tensor) -> Tensor:
    if tensor.is_meta or compat.is_fake(tensor):
        raise _unsupported("a meta or fake tensor", "it has a shape and no values", "run on a real device")
    if tensor.is_mkldnn:
        tensor = tensor.to_dense()
    if tensor.layout is not torch.strided or tensor.is_nested:
        raise _unsupported(
            f"a {'nested' if tensor.is_nested else str(tensor.layout).removeprefix('torch.')} tensor",
            "values that are not stored would have to be counted as zeros or left out, and only you know which",
            "reduce tensor.to_dense() for all of them, or tensor.values() for the stored ones",
        )
    if type(tensor) is not Tensor and not _dispatches(type(tensor)):
        tensor = tensor.as_subclass(Tensor)  # a subclass with methods of its own, whose memory is a tensor's
    if tensor.is_quantized:
        tensor = tensor.dequantize()
    if tensor.is_complex():
        tensor = tensor.abs()
    if tensor.dtype not in DTYPES:
        # Formats of 8 bits and fewer are all exact in float32.
        exact = tensor.is_floating_point() or tensor.dtype in _EXACT_IN_FLOAT32
        tensor = tensor.to(torch.float32 if exact else torch.float64)
    tensor = tensor.resolve_neg()
    return tensor.cpu() if tensor.device.type == "mps" else tensor  # MPS has no float64


def _unsupported(kind: str, why: str, instead: str) -> Unsupported:
    return Unsupported(backend="torch", feature=f"a statistic of {kind}", why=why, instead=instead)


def _dispatches(kind: type) -> bool:
    """Whether a subclass of Tensor is more than a tensor with methods: a wrapper of others, a fake."""
    return any("__torch_dispatch__" in vars(base) for base in kind.__mro__[: kind.__mro__.index(Tensor)])


@torch.no_grad()
def reduced_on_device(tensor: Tensor, histogram: bool, dim: int | None = None) -> Tensor:
    """Rows of 64-bit words: the bits of mean, m2, min and max, five counts, and the histogram if wanted."""
    with compat.aside():
        return _rows(tensor, histogram, dim)


def _rows(tensor: Tensor, histogram: bool, dim: int | None) -> Tensor:
    if dim is None:
        return _row(tensor.reshape(-1), histogram)
    slices = tensor.movedim(dim, 0)
    if not len(slices):
        return torch.zeros((0, HEADER + bins.COUNT * histogram), dtype=torch.int64, device=tensor.device)
    return torch.stack([_row(part.reshape(-1), histogram) for part in slices])


def _row(flat: Tensor, histogram: bool) -> Tensor:
    parts = [_chunk(chunk) for chunk in torch.split(flat, CHUNK)]
    moments = torch.stack([part[0] for part in parts])
    counts = torch.stack([part[1] for part in parts])
    mean, m2, finite = moments[:, 0], moments[:, 1], counts[:, 0].double()
    weights = finite / finite.sum().clamp(min=1)
    whole = (mean * weights).sum()
    apart = mean - whole
    spread = torch.where(finite > 0, finite * apart * apart, 0.0)
    head = torch.stack([whole, (m2 + spread).sum(), moments[:, 2].amin(), moments[:, 3].amax()])
    words = [head.view(torch.int64), counts.sum(0)]
    if histogram:
        words.append(torch.stack([_histogram(chunk) for chunk in torch.split(flat, CHUNK)]).sum(0))
    return torch.cat(words)


def _chunk(x: Tensor) -> tuple[Tensor, Tensor]:
    """(mean, m2, min, max) and (finite, zeros, near_zero, nan, inf) of some values."""
    nan, inf = x.isnan(), x.isinf()
    bad = nan | inf
    # torch takes 0.05 in the tensor's own dtype, so that a tensor filled with 0.05 is near zero in each.
    counts = torch.stack([(~bad).sum(), (x == 0).sum(), (x.abs() <= 0.05).sum(), nan.sum(), inf.sum()])
    wide = x.double()
    low = wide.masked_fill(bad, math.inf)
    high = wide.masked_fill(bad, -math.inf)
    if x.numel():
        low, high = low.amin(), high.amax()
    else:
        low, high = (torch.full((), end, dtype=wide.dtype, device=wide.device) for end in (math.inf, -math.inf))
    wide = wide.masked_fill(bad, 0.0)
    # Squares beyond float64 are honestly infinite, but the mean is not: it is taken at another scale.
    largest = torch.maximum(-low, high)
    scale = torch.ones_like(largest).masked_fill((largest > 2.0**500) & largest.isfinite(), 2.0**-600)
    wide = wide * scale
    mean = wide.sum() / counts[0].clamp(min=1)
    apart = (wide - mean).masked_fill(bad, 0.0)
    m2 = (apart * apart).sum()
    return torch.stack([mean / scale, m2 / scale / scale, low, high]), counts


def _histogram(x: Tensor) -> Tensor:
    """The counts of the bins, by the bits that the values have as float64."""
    bits = x.double().view(torch.int64)
    exponent = (bits >> 52 & 0x7FF) - 1023
    fraction = bits >> (52 - MANTISSA_BITS) & ((1 << MANTISSA_BITS) - 1)
    magnitude = 2 + ((exponent - LOWEST) << MANTISSA_BITS) + fraction
    magnitude = torch.where(exponent < LOWEST, 1, torch.where(exponent > HIGHEST, SIDE, magnitude))
    magnitude = torch.where(bits << 1 == 0, 0, magnitude)
    number = torch.where(bits < 0, SIDE - magnitude, SIDE + magnitude)
    number = torch.where(exponent == 1024, bins.COUNT, number)  # NaN and Inf, cut off below
    counts = torch.zeros(bins.COUNT + 1, dtype=torch.int64, device=x.device)
    # Not bincount: on a GPU it waits for the largest number.
    return counts.scatter_add_(0, number, torch.ones_like(number))[: bins.COUNT]


@torch.no_grad()
def scalars(functions: list[Callable[..., Any]], tensor: Tensor) -> Tensor:
    """The results of `function(tensor, torch)`, as the bits of float64."""
    with unseen(), compat.aside():
        found = [torch.as_tensor(function(tensor, torch), device=tensor.device).double() for function in functions]
        return torch.stack([value.reshape(()) for value in found]).view(torch.int64)


def fetched(tensors: list[Tensor]) -> list[Any]:
    """The tensors as flat numpy arrays; all of one device come in one transfer."""
    found: list[Any] = [None] * len(tensors)
    places: dict[torch.device, list[int]] = {}
    for place, tensor in enumerate(tensors):
        places.setdefault(tensor.device, []).append(place)
    with compat.aside():  # a step may end inside a transform
        for own in places.values():
            together = torch.cat([tensors[place].reshape(-1) for place in own]).cpu()
            parts = torch.split(together, [tensors[place].numel() for place in own])
            for place, part in zip(own, parts, strict=True):
                found[place] = part.numpy()
    return found
