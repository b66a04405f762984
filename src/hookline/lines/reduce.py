"""reduce: a tensor to a few words, at once on the CPU and on the device elsewhere; collect: those to Stats.

Upstream: a backend and the C kernel. Downstream: Stats; from there on there are no tensors.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hookline import bins
from hookline.backends import of_tensor
from hookline.backends.nouns import Tensor
from hookline.backends.protocol import Backend
from hookline.errors import InvalidArgument
from hookline.lines.kernel import Kernel, active, address_of, room_for
from hookline.lines.registry import Statistic, on_tensors
from hookline.lines.stats import Extra, Stats
from hookline.rows import HEADER

_backends: dict[type, Backend] = {}
"""The backend of each type of tensor seen: looking it up anew would take longer than a small reduction."""


class Reduced:
    """The statistics of a tensor before they are collected; it does not keep the tensor.

    `words` are memory that the kernel filled or a tensor on a device, in the layout of `_kernel.h`.
    """

    __slots__ = ("backend", "extra", "histogram", "scalars", "words")

    def __init__(self, backend: Backend, words: Any, histogram: bool) -> None:
        self.backend, self.words, self.histogram = backend, words, histogram
        self.extra: Sequence[Statistic] = ()
        self.scalars: Any = None


def reduced_into(words: int, tensor: Tensor, histogram: bool) -> bool:
    """Whether the kernel could write the statistics of `tensor` to the address `words`, where there are zeros."""
    kernel = active()
    backend = _backends.get(type(tensor)) or _backend_of(tensor)
    return kernel is not None and _written(kernel, backend, words, tensor, histogram)


def line_reducer(
    tensor: Tensor, histogram: bool, words: int, apart: int, lines: int, numbers: Iterator[int]
) -> Callable[[Tensor], int] | None:
    """What writes tensors like this one to lines (`Kernel.line_reducer`); None where there is no such."""
    kernel = active()
    rule = (_backends.get(type(tensor)) or _backend_of(tensor)).exchange_rule
    if kernel is None or rule is None:
        return None
    return kernel.line_reducer(rule, histogram, words, apart, lines, numbers)


def _written(kernel: Kernel, backend: Backend, words: int, tensor: Tensor, histogram: bool) -> bool:
    exchange = backend.exchange_of(tensor)
    if exchange is not None and kernel.reduce_direct(exchange, tensor, histogram, words):
        return True
    address = backend.address(tensor)
    if address is None:
        return False
    kernel.reduce_into(words, address, histogram)
    return True


def copied_into(words: int, tensor: Tensor, room: Tensor, histogram: bool) -> bool:
    """The same, in one pass with a copy of `tensor` into `room`; if not, nothing was done."""
    kernel = active()
    backend = _backends.get(type(tensor)) or _backend_of(tensor)
    exchange = None if kernel is None else backend.exchange_of(tensor)
    if kernel is None or exchange is None:
        return False
    return kernel.reduce_copied_direct(exchange, tensor, room, histogram, words)


def reduce(tensor: Tensor, histogram: bool = True, extra: Iterable[str] = ()) -> Reduced:
    """The statistics of all values of `tensor`, to be read by `collect`.

    On the CPU it is one pass of the C kernel; elsewhere, or without the kernel, operations of the framework
    that stay on the device and wait for nothing. The tensor, autograd and random numbers are left alone.
    `extra` names statistics of `hookline.lines.registry` that are computed from the tensor itself.

    >>> import torch
    >>> (stats,) = collect([reduce(torch.tensor([3.0, -4.0, float("nan")]))])
    >>> stats.row()["l2"], stats.nan
    (5.0, 1)
    """
    backend = _backends.get(type(tensor)) or _backend_of(tensor)
    kernel = active()
    words: Any = None
    if kernel is not None:
        words = room_for(histogram)
        if not _written(kernel, backend, address_of(words), tensor, histogram):
            words = None
    if words is None:
        tensor = backend.reducible(tensor)
        address = None if kernel is None else backend.address(tensor)
        if kernel is None or address is None:
            words = backend.reduced_on_device(tensor, histogram)
        else:
            words = kernel.reduce(address, histogram)
    reduced = Reduced(backend, words, histogram)
    if extra and (wanted := on_tensors(extra)):
        reduced.extra = wanted
        reduced.scalars = backend.scalars([found.fn for found in wanted], backend.reducible(tensor))
    return reduced


def reduce_difference(after: Tensor, before: Tensor, histogram: bool, into: int | None = None) -> Reduced | None:
    """What `reduce` gives for `after - before`, which is not made: the kernel reads both. None where it can't.

    >>> import torch
    >>> reduced = reduce_difference(torch.tensor([3.0, 4.0]), torch.tensor([1.0, 4.0]), histogram=False)
    >>> reduced is None or collect([reduced])[0].max == 2.0
    True
    """
    backend = _backends.get(type(after)) or _backend_of(after)
    kernel = active()
    if kernel is None:
        return None
    words: Any = None
    if into is None:
        words = room_for(histogram)
        into = address_of(words)
    exchange = backend.exchange_of(after)
    if exchange is not None and backend.exchange_of(before) is not None:
        done = kernel.reduce_difference_direct(exchange, after, before, histogram, into)
    else:
        done = False
    if not done and (addresses := backend.side_by_side(after, before)) is not None:
        done = kernel.reduce_difference_into(into, addresses, histogram)
    return Reduced(backend, words, histogram) if done else None


def reduce_channels(tensor: Tensor, dim: int = 1, histogram: bool = False) -> Reduced:
    """The statistics of each slice along `dim`, to be read by `collect_channels`.

    >>> import torch
    >>> (channels,) = collect_channels([reduce_channels(torch.tensor([[1.0, 10.0], [3.0, 30.0]]), dim=1)])
    >>> [stats.mean for stats in channels]
    [2.0, 20.0]
    """
    backend = _backends.get(type(tensor)) or _backend_of(tensor)
    tensor = backend.reducible(tensor)
    if not -tensor.ndim <= dim < tensor.ndim:
        raise InvalidArgument(f"dim={dim}: the tensor has {tensor.ndim} dims, its shape is {tuple(tensor.shape)}.")
    dim %= tensor.ndim
    kernel = active()
    address = None if kernel is None else backend.address(tensor, strided=True)
    if kernel is None or address is None:
        return Reduced(backend, backend.reduced_on_device(tensor, histogram, dim), histogram)
    return Reduced(backend, kernel.reduce_channels(address, dim, histogram), histogram)


def words_of(array: Tensor, histogram: bool, dim: int | None = None) -> NDArray[np.int64]:
    """The words of a numpy array's statistics; with `dim` a row for each of its indices.

    >>> Stats.from_words(words_of(np.array([3.0, 4.0]), True)).row()["l2"]
    5.0
    """
    if dim is None:
        return np.frombuffer(reduce(array, histogram).words, np.int64)
    return np.frombuffer(reduce_channels(array, dim, histogram).words, np.int64).reshape(array.shape[dim], -1)


def collect(reduced: Sequence[Reduced]) -> list[Stats]:
    """The Stats of each, in order, with one transfer for each device."""
    return [Stats.from_words(words, extra) for words, extra in fetched(reduced)]


def collect_channels(reduced: Sequence[Reduced]) -> list[list[Stats]]:
    """The Stats of each channel of each reduction, with one transfer for each device."""
    return [[Stats.from_words(line) for line in words] for words in collect_channel_words(reduced)]


def collect_channel_words(reduced: Sequence[Reduced]) -> list[NDArray[np.int64]]:
    """The words of each reduction, a line for each channel, with one transfer for each device."""
    widths = [HEADER + bins.COUNT * one.histogram for one in reduced]
    arrived = [np.frombuffer(words, np.int64) if len(words) else _NONE for words, _ in fetched(reduced)]
    return [words.reshape(-1, width) for words, width in zip(arrived, widths, strict=True)]


_NONE = np.empty(0, np.int64)


def fetched(reduced: Sequence[Reduced]) -> list[tuple[Any, Mapping[str, Extra] | None]]:
    """The words of each in this process's memory, and its extras."""
    found: list[list[Any]] = [[one.words, one.scalars] for one in reduced]
    wanted: dict[Backend, list[tuple[int, int]]] = {}
    for number, one in enumerate(reduced):
        for slot in (0, 1):
            if isinstance(found[number][slot], one.backend.tensor):
                wanted.setdefault(one.backend, []).append((number, slot))
    for backend, places in wanted.items():
        arrays = backend.fetched([found[number][slot] for number, slot in places])
        for (number, slot), array in zip(places, arrays, strict=True):
            found[number][slot] = array
    return [(words, _extra(one, scalars)) for one, (words, scalars) in zip(reduced, found, strict=True)]


def _extra(one: Reduced, scalars: Any) -> Mapping[str, Extra] | None:
    if scalars is None:
        return None
    numbers = scalars.view(np.float64).tolist()
    return {f.name: Extra(value, f.merge or "mean") for f, value in zip(one.extra, numbers, strict=True)}


def backend_of(tensor: Tensor) -> Backend:
    """The backend of a tensor's type."""
    return _backends.get(type(tensor)) or _backend_of(tensor)


def _backend_of(tensor: Tensor) -> Backend:
    backend = _backends[type(tensor)] = of_tensor(tensor)
    return backend
