"""Hashing: the fingerprint of bytes, a number of 64 bits, as the kernel makes it; `lines/_kernel_bits.h` says how.

It depends on every bit and on its place, and is the same everywhere: in C, here, and on devices
(`backends/torch/hashing.py`).
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

WORDS, BESIDE = 512, 8
"""So many words of 64 bits are a block; so far away is the second key of a word."""
WEYL = 0x9E3779B97F4A7C15
FACTORS = 0xD6E8FEB86659FD93, 0xA0761D6478BD642F
SHIFTS = 31, 29, 32
BLOCKS = 256
"""So many blocks are worked on at a time: a megabyte, which stays in a cache."""
MASK = (1 << 64) - 1

Bytes = NDArray[np.uint8]


def fingerprint(data: Bytes) -> int:
    """The fingerprint of some bytes.

    >>> from hookline.backends.hashing import fingerprint
    >>> zeros = np.zeros(3, np.uint8)
    >>> f"{fingerprint(zeros):016x}", fingerprint(zeros) == fingerprint(zeros[:2])
    ('adf3c148bb73160a', False)
    """
    words = np.zeros(-(-data.size // 8), "<u8")
    words.view(np.uint8)[: data.size] = data
    total = 0
    full = len(words) // WORDS * WORDS
    for start in range(0, full, BLOCKS * WORDS):
        total += _summed(words[start : min(start + BLOCKS * WORDS, full)].reshape(-1, WORDS), start // WORDS)
    if full < len(words):
        total += _summed(words[full:].reshape(1, -1), full // WORDS)
    return scrambled(total + data.size * WEYL)


def together(parts: Iterable[int]) -> int:
    """The fingerprint of several tensors, in their order; that of one alone is its own.

    >>> together([7]), together([7, 8]) == together([8, 7])
    (7, False)
    """
    first, *others = parts
    for other in others:
        first = scrambled(first + scrambled(other + WEYL))
    return first


def scrambled(number: int) -> int:
    """A number of 64 bits, each of which depends on all of the number's."""
    number &= MASK
    for shift, factor in zip(SHIFTS, FACTORS, strict=False):
        number = (number ^ number >> shift) * factor & MASK
    return number ^ number >> SHIFTS[-1]


@cache
def keys() -> NDArray[np.uint64]:
    """What is added to the words of a block."""
    found = np.asarray([scrambled((place + 1) * WEYL) for place in range(WORDS + BESIDE)], np.uint64)
    found.setflags(write=False)
    return found


def _summed(blocks: NDArray[Any], before: int) -> int:
    """The sum over blocks of words, which come after so many others."""
    width = blocks.shape[1]
    one, two = (_products(blocks + keys()[start : start + width]) for start in (0, BESIDE))
    places = np.arange(before + 1, before + 1 + len(blocks), dtype=np.uint64)
    with np.errstate(over="ignore"):
        return int(_scrambled(one ^ _scrambled(two + places * np.uint64(WEYL))).sum(dtype=np.uint64))


def _products(sums: NDArray[Any]) -> NDArray[Any]:
    with np.errstate(over="ignore"):
        found: NDArray[Any] = ((sums & np.uint64(0xFFFFFFFF)) * (sums >> np.uint64(32))).sum(
            axis=1, dtype=np.uint64
        )
        return found


def _scrambled(numbers: NDArray[Any]) -> NDArray[Any]:
    with np.errstate(over="ignore"):
        for shift, factor in zip(SHIFTS, FACTORS, strict=False):
            numbers = (numbers ^ numbers >> np.uint64(shift)) * np.uint64(factor)
    found: NDArray[Any] = numbers ^ numbers >> np.uint64(SHIFTS[-1])
    return found
