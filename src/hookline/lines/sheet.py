"""Sheet: the statistics of all tensors of a step in one array, a line of words for each.

The kernel writes straight into it, so that no object is made for each tensor. What is reduced elsewhere (on a
device, or without the kernel) is fetched when the step ends.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import count

import numpy as np

from hookline import bins
from hookline.backends.nouns import Tensor
from hookline.lines.columns import norms_of
from hookline.lines.fingerprints import Fingerprints
from hookline.lines.kernel import Words, active
from hookline.lines.reduce import (
    Reduced,
    copied_into,
    fetched,
    line_reducer,
    reduce,
    reduce_difference,
    reduced_into,
)
from hookline.lines.stats import Extra
from hookline.rows import HEADER

NAN, INF = HEADER - 2, HEADER - 1
"""Where a line has how many values are NaN, and Inf (`rows.HEAD`)."""


class Sheet:
    """The reductions of one step. There are so many `lines`; those that are more have memory of their own.

    With `fingerprint`, each line also has that of its tensor's bits (`fingerprints`).

    Threads may reduce at the same time: each gets a line of its own.

    >>> import torch
    >>> from hookline.lines import Stats
    >>> sheet = Sheet(histogram=False, lines=1)
    >>> first, second = sheet.reduce(torch.ones(3)), sheet.reduce(torch.zeros(5))
    >>> words, _ = sheet.read(2)
    >>> [Stats.from_words(words[line]).count for line in (first, second)]
    [3, 5]
    """

    def __init__(self, histogram: bool, lines: int, fingerprint: bool = False) -> None:
        self._histogram = histogram
        self._width = HEADER + bins.COUNT * histogram
        self._words: Words = np.zeros((lines, self._width), np.int64)
        self._address, self._lines = self._words.ctypes.data, lines
        self._apart = 8 * self._width
        self._next = count()
        self.into_line: Callable[[Tensor], int] | None = None
        self._has_looked = False
        self._elsewhere: dict[int, Reduced] = {}
        self._prints = Fingerprints(lines) if fingerprint else None

    def reduce(self, tensor: Tensor, extra: Iterable[str] = ()) -> int:
        """The number of the line that has the tensor's statistics from now on."""
        if extra:
            line = -1 - next(self._next)
        elif self.into_line is not None:
            line = self.into_line(tensor)
        else:
            line = self._into_any_line(tensor)
        if line < 0:
            line = self.reduce_elsewhere(line, tensor, extra)
        if self._prints is not None:
            self._prints.add(line, tensor)
        return line

    def reduce_elsewhere(self, failed: int, tensor: Tensor, extra: Iterable[str] = ()) -> int:
        """The number of the line, where the kernel could not write it and gave -1 less that number."""
        line = -1 - failed
        self._elsewhere[line] = reduce(tensor, self._histogram, extra)
        return line

    def _into_any_line(self, tensor: Tensor) -> int:
        """The number of the line that the kernel has written; where it could not, -1 less that number.

        The first tensor tells whether C can do that at once.
        """
        if not self._has_looked:
            self._has_looked = True
            arguments = self._histogram, self._address, self._apart, self._lines, self._next
            self.into_line = line_reducer(tensor, *arguments)
            if self.into_line is not None:
                return self.into_line(tensor)
        line = next(self._next)
        if line < self._lines and reduced_into(self._address + line * self._apart, tensor, self._histogram):
            return line
        return -1 - line

    def reduce_copied(self, tensor: Tensor, room: Tensor) -> tuple[int, bool]:
        """The same number, and whether `room` has a copy of the tensor now, which was made in the same pass."""
        line = next(self._next)
        into = self._address + line * self._apart
        copied = line < self._lines and copied_into(into, tensor, room, self._histogram)
        if not copied:
            self._elsewhere[line] = reduce(tensor, self._histogram)
        if self._prints is not None:
            self._prints.add(line, tensor)
        return line, copied

    def reduce_difference(self, after: Tensor, before: Tensor) -> int | None:
        """The same of `after - before`; None, and a line that stays empty, where that has to be made first."""
        line = next(self._next)
        into = self._address + line * self._apart if line < self._lines else None
        reduced = reduce_difference(after, before, self._histogram, into)
        if reduced is None or not (self._prints is None or self._prints.add_difference(line, after, before)):
            return None
        if reduced.words is not None:
            self._elsewhere[line] = reduced
        return line

    def nonfinite(self) -> tuple[bool, set[int]]:
        """Whether there is NaN anywhere, and the lines with Inf; of what was reduced straight into the sheet."""
        return bool(self._words[:, NAN].any()), set(np.flatnonzero(self._words[:, INF]).tolist())

    def norms(self, lines: Sequence[int]) -> list[float | None]:
        """The 2-norm of each line's tensor; None for one that was not reduced straight into the sheet."""
        here = [line for line in lines if line < self._lines and line not in self._elsewhere]
        found = dict(zip(here, norms_of(self._words[here, :HEADER]).tolist(), strict=True))
        return [found.get(line) for line in lines]

    def nbytes(self, lines: int) -> int:
        """How much memory so many lines take."""
        return lines * self._apart

    def fits(self, lines: int) -> bool:
        """Whether it has room for so many lines, and not many more."""
        return lines <= self._lines <= 2 * lines + 64

    def clear(self) -> None:
        """Forgets all lines; nobody may reduce meanwhile."""
        used = self._words[: next(self._next)]
        if self._histogram and (kernel := active()) is not None:
            kernel.clear(used)
        else:
            used[:] = 0
        self._next = count()
        self.into_line, self._has_looked = None, False
        self._elsewhere = {}
        if self._prints is not None:
            self._prints.clear()

    def fingerprints(self, number: int) -> list[int | None] | None:
        """Those of the first lines, None for one whose bits were not to be had; None where none was wanted."""
        return None if self._prints is None else self._prints.read(number)

    def read(self, number: int) -> tuple[Words, Mapping[int, Mapping[str, Extra]]]:
        """The first lines, after one transfer for each device; and what users' statistics found, by line."""
        words = self._words[:number]
        if number > self._lines:
            words = np.zeros((number, self._width), np.int64)
            words[: self._lines] = self._words
        extras: dict[int, Mapping[str, Extra]] = {}
        some = {line: reduced for line, reduced in list(self._elsewhere.items()) if line < number}
        for line, (found, extra) in zip(some, fetched(list(some.values())), strict=True):
            words[line] = np.frombuffer(found, np.int64)
            if extra:
                extras[line] = extra
        return words, extras
