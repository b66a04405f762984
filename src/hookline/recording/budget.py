"""Budget: a bound on the memory of a recording, and what happens at the bound.

Under a budget every stored tensor sits in a Cell. When the budget is used up, all cells are written
to one safetensors file and emptied, or, with nowhere to write, recording ends in RecordingTooLarge.
"""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import Any

from hookline.alone import Alone
from hookline.errors import InvalidArgument, RecordingTooLarge
from hookline.recording.files import read_tensor, write_tensors

UNITS = {"": 1, "K": 1000, "M": 1000**2, "G": 1000**3, "T": 1000**4}
BINARY = {"K": 1024, "M": 1024**2, "G": 1024**3, "T": 1024**4}

_alone = Alone()


def parse_bytes(text: int | str) -> int:
    """A number of bytes from a number or a text with a unit.

    >>> parse_bytes("2GB"), parse_bytes("1.5 MiB"), parse_bytes(4096)
    (2000000000, 1572864, 4096)
    """
    if isinstance(text, int) and not isinstance(text, bool) and text > 0:
        return text
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([KMGT]?)(i?)B?\s*", str(text), re.IGNORECASE)
    if match and isinstance(text, str) and not (match[3] and not match[2]):
        size = float(match[1]) * (BINARY if match[3] else UNITS)[match[2].upper()]
        if 1 <= size < math.inf:
            return int(size)
    raise InvalidArgument(
        f"limit={text!r} is not a size. Give bytes as a whole number above 0, or text such as "
        "'500MB', '2GB' or '1.5GiB'."
    )


class Cell:
    """A stored tensor, in memory or, after a spill, in a file."""

    __slots__ = ("framework", "key", "path", "value")

    def __init__(self, value: Any) -> None:
        self.value = value
        self.path: Path | None = None
        self.key = ""
        self.framework = ""

    def get(self) -> Any:
        """The tensor, read from its file if it was spilled."""
        if self.path is None:
            return self.value
        return read_tensor(self.path, self.key, self.framework)


class Budget:
    """Counts what a recording stores and spills or refuses beyond `limit` bytes."""

    def __init__(self, limit: int, spill: str | Path | None, framework: str) -> None:
        if spill is not None and not isinstance(spill, (str, Path)):
            raise InvalidArgument(f"spill={spill!r} is not a folder; give its path as text or a Path.")
        self.limit = limit
        self.used = 0
        self.spilled: list[Path] = []
        # Made whole now: the working directory may change before the recording is read.
        self._folder = None if spill is None else Path(spill).absolute()
        if self._folder is not None and self._folder.exists() and not self._folder.is_dir():
            raise InvalidArgument(f"spill={str(spill)!r} is a file; give a folder.")
        self._framework = framework
        self._cells: dict[Cell, int] = {}

    def open(self) -> None:
        """Makes the folder for spilling; InvalidArgument where it can't be one."""
        if self._folder is not None:
            try:
                self._folder.mkdir(parents=True, exist_ok=True)
            except OSError as error:
                raise InvalidArgument(f"spill={str(self._folder)!r} can't be used as a folder: {error}") from error

    @_alone
    def admit(self, value: Any, size: int, site: str) -> Cell:
        """A cell with `value` in it; RecordingTooLarge where it does not fit and can't be spilled."""
        if self.used + size > self.limit:
            if self._folder is None:
                raise RecordingTooLarge(site, self.limit, self.used + size)
            self._spill()
        cell = Cell(value)
        self._cells[cell] = size
        self.used += size
        if self.used > self.limit:  # one value larger than the whole budget
            self._spill()
        return cell

    @_alone
    def release(self, cell: Cell) -> None:
        """Counts `cell` no more: something newer stands in its place."""
        self.used -= self._cells.pop(cell, 0)

    def _spill(self) -> None:
        if not self._cells or self._folder is None:
            return
        # A new name each time: an earlier recording's files in the same folder stay whole.
        number = len(self.spilled)
        while (path := self._folder / f"spill-{number:04d}.safetensors").exists():
            number += 1
        tensors = {str(number): cell.value for number, cell in enumerate(self._cells)}
        write_tensors(path, tensors, {}, self._framework)
        for number, cell in enumerate(self._cells):
            cell.path, cell.key, cell.framework, cell.value = path, str(number), self._framework, None
        self.spilled.append(path)
        self._cells.clear()
        self.used = 0
