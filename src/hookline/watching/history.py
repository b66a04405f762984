"""History: the rows of the latest steps in memory, the newest as they are and the others compressed."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

from hookline.rows import Rows, Series
from hookline.runfiles.frames import Block, pack, unpack

PLAIN_BYTES = 16 << 20
"""So much is kept as it is; what is older is compressed, which takes time in the training's own thread."""


class History:
    """The rows of the last `steps` steps that were added.

    A row takes a hundred bytes and its histogram a few hundred; as a dict it would be ten thousand.
    """

    def __init__(self, steps: int) -> None:
        self._most = steps
        self._plain: deque[Rows] = deque()
        self._packed: deque[tuple[Block, int]] = deque()
        self._plain_bytes = 0
        self._numbers: dict[Series, int] = {}

    def add(self, rows: Rows) -> None:
        """Takes the rows of a step; the oldest step goes where there are too many."""
        self._plain.append(rows)
        self._plain_bytes += rows.nbytes
        while self._plain_bytes > PLAIN_BYTES and len(self._plain) > 1:
            oldest = self._plain.popleft()
            self._plain_bytes -= oldest.nbytes
            self._packed.append((pack(oldest, self._numbered(oldest)), oldest.rank))
        while len(self._packed) + len(self._plain) > self._most:
            if self._packed:
                self._packed.popleft()
            else:
                self._plain_bytes -= self._plain.popleft().nbytes

    def __iter__(self) -> Iterator[Rows]:
        """The rows of each step, the oldest first."""
        series = {number: one for one, number in self._numbers.items()}
        for block, rank in self._packed:
            yield unpack(block, series, rank)
        yield from self._plain

    @property
    def nbytes(self) -> int:
        """How many bytes all rows take."""
        packed = sum(len(block.stats) + len(block.hists or b"") for block, _ in self._packed)
        return packed + self._plain_bytes

    def _numbered(self, rows: Rows) -> list[int]:
        return [self._numbers.setdefault(one, len(self._numbers)) for one in rows.series]
