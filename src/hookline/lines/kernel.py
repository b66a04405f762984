"""Kernel: the C library that reduces CPU memory in one pass, found, loaded and called.

It is called through ctypes, which lets other threads run meanwhile. HOOKLINE_KERNEL=baseline or =torch
in the environment does without AVX, or without the library; =avx2 does without AVX-512.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cached_property, partial
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hookline import bins
from hookline.backends.nouns import Tensor
from hookline.backends.protocol import Address, ExchangeRule
from hookline.errors import InvalidArgument
from hookline.histograms import Histograms
from hookline.rows import HEADER

Words = NDArray[np.int64]

reduce_tensor: Callable[[object, int, int, int, int, Tensor], bool] | None
reduce_line: Callable[..., int] | None
reduce_two: Callable[[object, int, Tensor, Tensor, int, int], bool] | None
try:
    from hookline.backends._direct import reduce as reduce_tensor
    from hookline.backends._direct import reduce_line, reduce_two
except ImportError:  # there was no compiler when hookline was installed
    reduce_tensor = reduce_line = reduce_two = None

ABI = 5 * 10000 + bins.COUNT
CODES = {"float32": 0, "float64": 1, "float16": 2, "bfloat16": 3}
BYTES = 4
"""The code of what is hashed byte by byte."""
MAX_DIMS = 8
WAYS = {"avx512": "AVX-512", "avx2": "AVX2", "baseline": "baseline C", "torch": "torch"}
"""What HOOKLINE_KERNEL may ask for, from the best on, and what `kernel_in_use` calls it."""
LEVELS = {"avx512": 3, "avx2": 2, "baseline": 1}
"""Those of `_kernel.h`."""

Plain = ctypes.c_int64 * HEADER
Full = ctypes.c_int64 * (HEADER + bins.COUNT)
address_of = ctypes.addressof


def room_for(histogram: bool) -> Any:
    """Zeros for the words of a result."""
    return Full() if histogram else Plain()


class Kernel:
    """The loaded library, at one of the LEVELS."""

    def __init__(self, library: ctypes.CDLL, level: int) -> None:
        self.library, self.level = library, level
        self.name = next(WAYS[way] for way, one in LEVELS.items() if one == level)
        # Addresses are passed as integers: ctypes takes twice as long for its own arrays.
        self._reduce = library.hookline_reduce
        self._reduce.argtypes = [ctypes.c_void_p, ctypes.c_int64, ctypes.c_int, ctypes.c_void_p]
        self._reduce.restype = None
        address, number = ctypes.c_void_p, ctypes.c_int
        self._difference = library.hookline_reduce_difference
        self._difference.argtypes = [address, address, ctypes.c_int64, number, address]
        self._strided = library.hookline_reduce_strided
        self._strided.argtypes = [address, number, address, address, number, number, address]
        self._plain, self._any_layout, self._copying, self._subtracting = (
            ctypes.cast(function, ctypes.c_void_p).value or 0
            for function in (self._reduce, self._strided, library.hookline_reduce_copied, self._difference)
        )
        self._fingerprint = library.hookline_fingerprint
        self._fingerprint.argtypes, self._fingerprint.restype = self._reduce.argtypes, None
        self._fingerprint_strided = library.hookline_fingerprint_strided
        self._fingerprint_strided.argtypes = self._strided.argtypes
        self._fingerprint_difference = library.hookline_fingerprint_difference
        self._fingerprint_difference.argtypes = self._difference.argtypes
        self._bits, self._any_bits = (
            ctypes.cast(function, ctypes.c_void_p).value or 0
            for function in (self._fingerprint, self._fingerprint_strided)
        )
        self._gather = library.hookline_gather
        self._gather.argtypes, self._gather.restype = [address, ctypes.c_int64, *[address] * 3], ctypes.c_int64
        self._clear = library.hookline_clear
        self._clear.argtypes, self._clear.restype = [address, ctypes.c_int64], None
        self._spread = library.hookline_spread
        self._spread.argtypes, self._spread.restype = [address, *[ctypes.c_int64] * 3, address], None
        self._any_dtype = [level << 4 | histogram << 8 for histogram in (0, 1)]
        self._how = [{name: how | code for name, code in CODES.items()} for how in self._any_dtype]

    def reduce(self, address: Address, histogram: bool) -> Any:
        """The words of the result, as `Stats.from_words` reads them."""
        words = room_for(histogram)
        self.reduce_into(address_of(words), address, histogram)
        return words

    def reduce_into(self, words: int, address: Address, histogram: bool) -> None:
        """Writes the words of the result to memory that is zero there."""
        pointer, count, dtype, layout = address
        how = self._how[histogram][dtype]
        if layout is None:
            self._reduce(pointer, count, how, words)
        else:
            self._call_strided(pointer, layout, -1, how, words)

    def reduce_direct(self, exchange: object, tensor: Tensor, histogram: bool, words: int) -> bool:
        """The same for a tensor that tells itself where it lies (`Backend.exchange_of`); whether it could."""
        if reduce_tensor is None:
            return False
        how = self._any_dtype[histogram]
        return reduce_tensor(exchange, self._plain, self._any_layout, how, words, tensor)

    def line_reducer(
        self, rule: ExchangeRule, histogram: bool, words: int, apart: int, lines: int, numbers: Iterator[int]
    ) -> Callable[[Tensor], int] | None:
        """Writes the words of tensors to lines of memory, so many bytes apart, and gives the number of each.

        It is the next of `numbers`; or, where the tensor can't be reduced so, -1 less that number.
        """
        if reduce_line is None:
            return None
        how = self._any_dtype[histogram]
        exchange, types, is_odd = rule
        return partial(
            reduce_line, exchange, self._plain, self._any_layout, how, types, is_odd, words, apart, lines, numbers
        )

    def reduce_copied_direct(
        self, exchange: object, tensor: Tensor, room: Tensor, histogram: bool, words: int
    ) -> bool:
        """The same, in one pass with a copy of the tensor into `room`; without it, `room` has anything."""
        if reduce_two is None:
            return False
        return reduce_two(exchange, self._copying, tensor, room, self._any_dtype[histogram], words)

    def reduce_difference_direct(
        self, exchange: object, after: Tensor, before: Tensor, histogram: bool, words: int
    ) -> bool:
        """The same of `after - before`."""
        if reduce_two is None:
            return False
        return reduce_two(exchange, self._subtracting, after, before, self._any_dtype[histogram], words)

    def reduce_difference_into(self, words: int, addresses: tuple[Address, Address], histogram: bool) -> bool:
        """Writes the words of the differences of two memories without gaps; whether it could be done."""
        (pointer, count, dtype, _), (less, *_) = addresses
        return not self._difference(pointer, less, count, self._how[histogram][dtype], words)

    def reduce_channels(self, address: Address, dim: int, histogram: bool) -> Any:
        """The words of one result for each index of `dim`, behind each other; `address` has its layout."""
        pointer, _, dtype, layout = address
        assert layout is not None
        words = (ctypes.c_int64 * ((HEADER + bins.COUNT * histogram) * layout[0][dim]))()
        self._call_strided(pointer, layout, dim, self._how[histogram][dtype], address_of(words))
        return words

    def histograms_of(self, words: Words) -> Histograms:
        """The histograms of many results, a line of words for each, which lie behind each other."""
        lines = len(words)
        lengths, which = np.empty(lines, np.int64), np.empty(lines * bins.COUNT, np.uint16)
        counts = np.empty(lines * bins.COUNT, np.int64)
        into = (array.ctypes.data for array in (lengths, which, counts))
        found = self._gather(words.ctypes.data, lines, *into)
        return Histograms(lengths, which[:found].copy(), counts[:found].copy(), bins.COUNT)

    def clear(self, words: Words) -> None:
        """Makes such words zero."""
        self._clear(words.ctypes.data, len(words))

    def spread(self, pointer: int, lines: int, width: int, step: int) -> tuple[float, float]:
        """How far so many lines of fp32 values are apart, and how large these are, by every `step`-th value:
        the RMS of the standard deviations over the lines, and of the values."""
        found = (ctypes.c_double * 2)()
        self._spread(pointer, lines, width, step, address_of(found))
        return found[0], found[1]

    def fingerprint_direct(self, exchange: object, tensor: Tensor, word: int) -> bool:
        """Writes the fingerprint of a tensor that tells where it lies to memory; whether it could."""
        if reduce_tensor is None:
            return False
        return reduce_tensor(exchange, self._bits, self._any_bits, self._any_dtype[0], word, tensor)

    def fingerprint_into(self, word: int, address: Address, *, in_order: bool) -> None:
        """The same of values somewhere; `in_order`: they lie behind each other, in the order of their indices."""
        pointer, count, dtype, layout = address
        if in_order:
            self._fingerprint(pointer, count, self._how[0][dtype], word)
        else:
            self._call_strided(pointer, layout, -1, self._how[0][dtype], word, self._fingerprint_strided)

    def fingerprint_difference_into(self, word: int, addresses: tuple[Address, Address]) -> bool:
        """The same of the differences of two memories without gaps; whether it could be done."""
        (pointer, count, dtype, _), (less, *_) = addresses
        return not self._fingerprint_difference(pointer, less, count, self._how[0][dtype], word)

    def fingerprint_bytes(self, pointer: int, count: int) -> int:
        """The fingerprint of so many bytes."""
        word = ctypes.c_uint64()
        self._fingerprint(pointer, count, self._any_dtype[0] | BYTES, address_of(word))
        return word.value

    def _call_strided(
        self, pointer: int, layout: Any, dim: int, how: int, words: int, function: Any = None
    ) -> None:
        shape, strides = layout
        numbers = ctypes.c_int64 * len(shape)
        sizes, steps = numbers(*shape), numbers(*strides)
        call = function or self._strided
        call(pointer, len(shape), address_of(sizes), address_of(steps), dim, how, words)

    @cached_property
    def read_pass(self) -> Any:
        """The C function that only reads: (address of fp32 values, their number) -> their sum. For bench/."""
        function = self.library.hookline_read_pass
        function.argtypes = [ctypes.c_void_p, ctypes.c_int64]
        function.restype = ctypes.c_double
        return function


class _Choice:
    """Which kernel is used: found at first use, None for torch, and why."""

    def __init__(self) -> None:
        self.found = False
        self.kernel: Kernel | None = None
        self.why = ""

    def get(self) -> Kernel | None:
        if not self.found:
            self.kernel, self.why = _load(os.environ.get("HOOKLINE_KERNEL", "avx512"))
            self.found = True
        return self.kernel


_choice = _Choice()
active = _choice.get


def _load(wanted: str) -> tuple[Kernel | None, str]:
    if wanted not in WAYS:
        raise InvalidArgument(f"HOOKLINE_KERNEL={wanted!r} is unknown; it may be {', '.join(WAYS)}.")
    if wanted == "torch":
        return None, "HOOKLINE_KERNEL=torch"
    here = Path(__file__).parent
    paths = [path for suffix in EXTENSION_SUFFIXES if (path := here / f"_kernel{suffix}").exists()]
    if not paths:
        return None, "the C kernel was not built: no C compiler was found when hookline was installed"
    try:
        library = ctypes.CDLL(str(paths[0]))
        if library.hookline_abi() != ABI:
            return None, "the C kernel is of another version of hookline: install hookline again"
    except (OSError, AttributeError) as error:
        return None, f"the C kernel can't be loaded: {error}"
    return Kernel(library, min(LEVELS[wanted], library.hookline_best_level())), ""


def kernel_in_use() -> str:
    """What reduces CPU tensors: "AVX-512", "AVX2", "baseline C" or "torch"; `why_not_native` tells why that.

    >>> kernel_in_use() in ("AVX-512", "AVX2", "baseline C", "torch")
    True
    """
    kernel = active()
    return "torch" if kernel is None else kernel.name


def why_not_native() -> str:
    """Why the C kernel is not in use; empty where it is."""
    active()
    return _choice.why


@contextmanager
def using(wanted: str) -> Iterator[str]:
    """Has one of the WAYS, or the next best, be used within a block, in all threads: for tests and comparisons.

    >>> with using("torch"):
    ...     kernel_in_use()
    'torch'
    """
    before = active(), _choice.why
    _choice.kernel, _choice.why = _load(wanted)
    try:
        yield kernel_in_use()
    finally:
        _choice.kernel, _choice.why = before
