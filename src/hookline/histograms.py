"""Histograms: those of many rows in three arrays, which have only the bins that are not empty."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hookline.errors import InvalidArgument

Counts = NDArray[np.int64]


class Histograms(NamedTuple):
    """The counted bins of many rows, row after row.

    `lengths` says how many bins each row has, -1 for a row without a histogram; `bins` and `counts` have an entry
    for each of them. `size` is the number of bins that a histogram has with the empty ones.
    """

    lengths: Counts
    bins: NDArray[Any]
    counts: Counts
    size: int

    @classmethod
    def of(cls, dense: Sequence[Counts | None]) -> Histograms:
        """The histograms that are given with all their bins, None for a row without one.

        >>> found = Histograms.of([np.asarray([0, 5, 0, 2]), None, np.asarray([0, 0, 0, 0])])
        >>> found.lengths.tolist(), found.bins.tolist(), found.counts.tolist(), found.size
        ([2, -1, 0], [1, 3], [5, 2], 4)
        """
        sizes = {len(hist) for hist in dense if hist is not None} or {0}
        if len(sizes) > 1:
            raise InvalidArgument(f"histograms have {sizes} bins; expected the same number in all of them.")
        (size,) = sizes
        used: list[Counts | None] = [None if hist is None else np.flatnonzero(hist) for hist in dense]
        lengths = np.asarray([-1 if some is None else len(some) for some in used], np.int64)
        bins: list[Any] = [some for some in used if some is not None]
        counts = [hist[some] for hist, some in zip(dense, used, strict=True) if hist is not None]
        if not bins:
            return cls.none(len(dense))
        return cls(lengths, np.concatenate(bins).astype(np.uint16), np.concatenate(counts), size)

    @classmethod
    def none(cls, rows: int) -> Histograms:
        """Those of so many rows without any."""
        return cls(np.full(rows, -1, np.int64), _NO_BINS, _NO_COUNTS, 0)

    @classmethod
    def joined(cls, parts: Iterable[Histograms]) -> Histograms:
        """Those of all parts, one after the other."""
        some = list(parts) or [cls.none(0)]
        return cls(
            np.concatenate([part.lengths for part in some]),
            np.concatenate([part.bins for part in some]),
            np.concatenate([part.counts for part in some]),
            max(part.size for part in some),
        )

    def at(self, places: Any) -> Histograms:
        """Those of the rows at these places, in this order.

        >>> three = Histograms.of([np.asarray([1, 0]), None, np.asarray([2, 3])])
        >>> three.at([2, 1]).counts.tolist()
        [2, 3]
        """
        full = np.maximum(self.lengths, 0)
        starts, mine = np.cumsum(full) - full, full[places]
        before = np.cumsum(mine) - mine
        entries = np.arange(int(mine.sum())) + np.repeat(starts[places] - before, mine)
        return Histograms(self.lengths[places], self.bins[entries], self.counts[entries], self.size)

    def dense(self) -> list[Counts | None]:
        """Each with all its bins; None for a row without one."""
        found: list[Counts | None] = []
        start = 0
        for length in self.lengths.tolist():
            hist = None
            if length >= 0:
                end = start + length
                hist = np.zeros(self.size, np.int64)
                hist[self.bins[start:end]] = self.counts[start:end]
                start = end
            found.append(hist)
        return found

    @property
    def nbytes(self) -> int:
        """How many bytes it takes."""
        return self.lengths.nbytes + self.bins.nbytes + self.counts.nbytes


_NO_BINS = np.empty(0, np.uint16)
_NO_COUNTS = np.empty(0, np.int64)
