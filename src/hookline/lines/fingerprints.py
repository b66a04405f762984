"""Fingerprints: a number of 64 bits for the bits of each tensor of a step, beside its line of a sheet.

The kernel makes it in one more pass over CPU memory; without the kernel numpy does, on a device the framework. All
give the same number: two runs, of two machines too, that have the same numbers had the same bits.
"""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hookline.backends import hashing
from hookline.backends.nouns import Tensor
from hookline.backends.protocol import Address, Backend
from hookline.lines.kernel import active, address_of
from hookline.lines.reduce import backend_of

_Word = ctypes.c_uint64


def fingerprint(tensor: Tensor) -> int | None:
    """The fingerprint of the bits of `tensor`, in the order of its indices; None where nobody has its bits here.

    >>> import torch
    >>> x = torch.arange(6.0).view(2, 3)
    >>> fingerprint(x) == fingerprint(x.t().contiguous().t()), fingerprint(x) == fingerprint(x.flip(0))
    (True, False)
    """
    held = Fingerprints(1)
    held.add(0, tensor)
    return held.read(1)[0]


class Fingerprints:
    """Those of the tensors of a step, by line. There is room for so many; others have a place of their own."""

    def __init__(self, lines: int) -> None:
        self._words: NDArray[np.uint64] = np.zeros(lines, np.uint64)
        self._address, self._lines = self._words.ctypes.data, lines
        self._elsewhere: dict[int, Any] = {}
        self._unknown: set[int] = set()

    def add(self, line: int, tensor: Tensor) -> None:
        """Takes the fingerprint of a tensor; one on a device is waited for when it is read."""
        backend = backend_of(tensor)
        word = _Word() if line >= self._lines else None
        if _hashed_into(self._address + 8 * line if word is None else address_of(word), backend, tensor):
            if word is not None:
                self._elsewhere[line] = word.value
            return
        data = backend.bytes_of(tensor)
        found: Any = backend.hashed_on_device(tensor) if data is None else _of_bytes(data)
        if found is None:
            self._unknown.add(line)
        else:
            self._elsewhere[line] = found if data is not None else (backend, found)

    def add_difference(self, line: int, after: Tensor, before: Tensor) -> bool:
        """The same of `after - before`, which is not made; whether the kernel could."""
        backend, kernel = backend_of(after), active()
        addresses = None if kernel is None else backend.side_by_side(after, before)
        layout = backend.address(after, strided=True)
        if kernel is None or addresses is None or layout is None or not _is_in_order(layout):
            return False
        word = _Word()
        if not kernel.fingerprint_difference_into(address_of(word), addresses):
            return False
        self._elsewhere[line] = word.value
        return True

    def clear(self) -> None:
        """Forgets all."""
        self._words[:] = 0
        self._elsewhere, self._unknown = {}, set()

    def read(self, number: int) -> list[int | None]:
        """Those of the first lines, after one transfer for each device; None for bits that nobody has here."""
        found: list[int | None] = [*self._words[:number].tolist(), *[None] * max(0, number - self._lines)]
        waiting: dict[Backend, list[int]] = {}
        for line, one in list(self._elsewhere.items()):
            if line < number and isinstance(one, tuple):
                waiting.setdefault(one[0], []).append(line)
            elif line < number:
                found[line] = one
        for backend, lines in waiting.items():
            arrays = backend.fetched([self._elsewhere[line][1] for line in lines])
            for line, array in zip(lines, arrays, strict=True):
                found[line] = int(array[0]) & hashing.MASK
        for line in self._unknown:
            if line < number:
                found[line] = None
        return found


def _hashed_into(word: int, backend: Backend, tensor: Tensor) -> bool:
    """Whether the kernel could write the fingerprint of a tensor to an address."""
    kernel = active()
    if kernel is None:
        return False
    exchange = backend.exchange_of(tensor)
    if exchange is not None and kernel.fingerprint_direct(exchange, tensor, word):
        return True
    address = backend.address(tensor, strided=True)
    if address is None:
        return False
    kernel.fingerprint_into(word, address, in_order=_is_in_order(address))
    return True


def _of_bytes(data: NDArray[np.uint8]) -> int:
    kernel = active()
    return hashing.fingerprint(data) if kernel is None else kernel.fingerprint_bytes(data.ctypes.data, data.size)


def _is_in_order(address: Address) -> bool:
    """Whether values lie behind each other in the order of their indices."""
    layout = address[3]
    if layout is None:
        return True
    apart = 1
    for size, stride in zip(reversed(layout[0]), reversed(layout[1]), strict=True):
        if size != 1 and stride != apart:
            return False
        apart *= max(size, 1)
    return True
