"""Hashing of torch tensors: their bytes, for the C kernel or numpy; and the fingerprint by torch's own operations.

The latter serves devices: it stays there and waits for nothing. `backends/hashing.py` says what it is.
"""

from __future__ import annotations

from typing import Any

import torch
from numpy.typing import NDArray
from torch import Tensor

from hookline.backends import hashing
from hookline.backends.hashing import BESIDE, FACTORS, SHIFTS, WEYL, WORDS
from hookline.backends.torch import compat
from hookline.backends.torch.statistics import reducible
from hookline.backends.torch.values import laid_bare

BLOCKS = 1 << 13
"""So many blocks are worked on at a time: 32 MB, and a few times as much for what is computed of them."""
_keys: dict[torch.device, Tensor] = {}


def bytes_of(tensor: Tensor) -> NDArray[Any] | None:
    """The bytes of the values in the order of their indices; None for a tensor that is not on the CPU."""
    if not tensor.is_cpu:
        return None
    with torch.no_grad(), compat.aside():
        found: NDArray[Any] = _bytes(_plain(tensor)).numpy()
        return found


@torch.no_grad()
def hashed_on_device(tensor: Tensor) -> Tensor:
    """The fingerprint as a 64-bit integer on the tensor's device."""
    with compat.aside():
        data = _bytes(_plain(tensor))
        size = data.numel()
        if size % 8:
            data = torch.cat([data, data.new_zeros(8 - size % 8)])
        elif data.storage_offset() % 8:
            data = data.clone()  # what is looked at as words has to begin with one
        words = data.view(torch.int64)
        full = words.numel() // WORDS * WORDS
        total = words.new_zeros(())
        for start in range(0, full, BLOCKS * WORDS):
            total += _summed(words[start : min(start + BLOCKS * WORDS, full)].view(-1, WORDS), start // WORDS)
        if full < words.numel():
            total += _summed(words[full:].view(1, -1), full // WORDS)
        return _scrambled(total + _signed(size * WEYL)).reshape(1)


def _plain(tensor: Tensor) -> Tensor:
    """A tensor whose memory has the values as they are; of what has them elsewhere, what statistics are of."""
    if compat.is_seen(tensor):
        with laid_bare(tensor) as bare:
            tensor = bare
    tensor = tensor.detach()
    is_plain = type(tensor) is Tensor and tensor.layout is torch.strided
    if not is_plain or tensor.is_quantized or tensor.is_nested or tensor.is_meta:
        tensor = reducible(tensor)
    return tensor.resolve_conj().resolve_neg().contiguous()


def _bytes(tensor: Tensor) -> Tensor:
    return tensor.reshape(-1).view(torch.uint8)


def _signed(number: int) -> int:
    """The number of 64 bits with a sign that has the same bits."""
    number &= hashing.MASK
    return number - (1 << 64) if number >> 63 else number


def _keys_on(device: torch.device) -> Tensor:
    if device not in _keys:
        _keys[device] = torch.from_numpy(hashing.keys().view("<i8").copy()).to(device)
    return _keys[device]


def _summed(blocks: Tensor, before: int) -> Tensor:
    """The sum over blocks of words, which come after so many others."""
    width, keys = blocks.shape[1], _keys_on(blocks.device)
    one, two = (_products(blocks + keys[start : start + width]) for start in (0, BESIDE))
    places = torch.arange(before + 1, before + 1 + len(blocks), device=blocks.device)
    return _scrambled(one ^ _scrambled(two + places * _signed(WEYL))).sum()


def _products(sums: Tensor) -> Tensor:
    return ((sums & 0xFFFFFFFF) * _shifted(sums, 32)).sum(dim=1)


def _shifted(numbers: Tensor, by: int) -> Tensor:
    """Shifted to the right, with zeros coming in; torch's own brings the sign in."""
    return (numbers >> by) & ((1 << (64 - by)) - 1)


def _scrambled(numbers: Tensor) -> Tensor:
    for shift, factor in zip(SHIFTS, FACTORS, strict=False):
        numbers = (numbers ^ _shifted(numbers, shift)) * _signed(factor)
    return numbers ^ _shifted(numbers, SHIFTS[-1])
