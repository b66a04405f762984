"""Attribution: to which call of which module an operator of a backward belongs.

Autograd numbers its nodes in the order of their making, thread by thread. A trail notes at which number
each module was entered and left, and so knows for any later node where it was made. For operators the
line of code is noted in the same way, if somebody asks for it.
"""

from __future__ import annotations

import contextlib
import functools
import sys
from bisect import bisect_right
from functools import lru_cache
from pathlib import Path
from types import CodeType, FrameType

from torch import nn

import hookline.errors
from hookline.backends.operators import Scope
from hookline.backends.torch.compat import model_callers, sequence_number

LIMIT = 2**18
"""Marks that a trail keeps. Older ones go: their graphs are long gone in all but the oddest loops."""

FILES = 4096
"""Names of files that are kept with what was found out of them."""

TORCH = str(Path(nn.__file__).parents[1])
HERE = str(Path(hookline.errors.__file__).parent)
BETWEEN = (contextlib.__file__, functools.__file__)
"""What stands on the stack between a user's line and the library that it calls: decorators."""
MODELS = tuple(str(Path(HERE, folder)) for folder in ("testing", "examples"))
"""Folders of hookline in which there are models."""


known_files: dict[str, bool] = {}
"""Whether code in a file is hookline's, and no model; as far as it was found out."""


class Trail:
    """The scopes and lines of one thread, by the number of the autograd node that was next."""

    def __init__(self) -> None:
        self.numbers: list[int] = []
        self.scopes: list[Scope | None] = []
        self._lines: dict[int, str] = {}

    def mark(self, scope: Scope | None, number: int = -1) -> None:
        """From now on nodes are made in `scope`; `number` is that of the next one, if it is known."""
        if number < 0:
            number = sequence_number()
        numbers = self.numbers
        if numbers and numbers[-1] >= number:
            self.scopes[-1] = scope
            return
        numbers.append(number)
        self.scopes.append(scope)
        if len(numbers) > LIMIT:
            del numbers[: LIMIT // 2], self.scopes[: LIMIT // 2]

    def mark_line(self, line: str | None) -> None:
        """The operator under way stands in this line; its node, if it has one, was made just now."""
        if line is not None:
            self._lines[sequence_number() - 1] = line
            if len(self._lines) > LIMIT:
                for number in list(self._lines)[: LIMIT // 2]:
                    del self._lines[number]

    def scope(self, number: int) -> Scope | None:
        """Where the node of that number was made."""
        index = bisect_right(self.numbers, number) - 1
        return self.scopes[index] if index >= 0 else None

    def line(self, number: int) -> str | None:
        """The line of code that made the node of that number."""
        return self._lines.get(number)


def current_line() -> str | None:
    """`model.py:12`, the innermost line under way that is neither torch's nor hookline's."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        if not is_library(frame.f_code.co_filename):
            return f"{Path(frame.f_code.co_filename).name}:{frame.f_lineno}"
        frame = frame.f_back
    return None


def is_own(code: CodeType) -> bool:
    """Whether operators that this code runs are hookline's own work on a model, such as copies."""
    return _is_hooklines(code.co_filename) and id(code) not in model_callers


@lru_cache(FILES)
def is_library(file: str) -> bool:
    """Whether code in this file is torch's, hookline's or Python's own that calls them, not the model's."""
    return file.startswith((TORCH, "<frozen")) or file in BETWEEN or _is_hooklines(file)


def _is_hooklines(file: str) -> bool:
    """Whether code in this file is hookline's, and no model."""
    found = known_files.get(file)
    if found is None:
        if len(known_files) >= FILES:  # code that is made at run time may have a new name each time
            known_files.clear()
        found = known_files[file] = file.startswith(HERE) and not file.startswith(MODELS)
    return found
