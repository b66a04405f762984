"""Progress: one line in the terminal that tells how far a watch is. It stands aside for everybody else.

Whoever prints finds the line taken away. Whoever draws lines of their own there, by a carriage return or by codes
that move the cursor (tqdm, rich, a loop that prints "\\r"), has the terminal from then on.
"""

from __future__ import annotations

import re
import shutil
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from hookline.reporting import report

SECONDS = 0.25
"""The line changes no more often than this."""
IN_A_LOG = 10.0
"""Where it was asked for and is no terminal: a line each, and no more often than this."""
DRAWING = re.compile("\r(?!\n)|\x1b\\[[0-9;?]*[A-KSTfhlsu]")
ERASED = "\r\x1b[2K"


class Progress:
    """The step and the number of rows on standard error; by default in a terminal that is not a notebook's.

    >>> progress = Progress(wanted=False)
    >>> progress.tell(3, 120); progress.close()
    """

    def __init__(self, wanted: bool | None = None) -> None:
        self._rows = 0
        self._told = time.monotonic()
        self._line: Line | None = None
        self._log = bool(wanted) and not draws_lines()
        if (in_terminal() if wanted is None else wanted) and not self._log:
            self._line = Line(sys.stderr)

    def tell(self, step: int, rows: int) -> None:
        """A step has ended, with so many rows."""
        self._rows += rows
        if self._line is None and not self._log:
            return
        now = time.monotonic()
        if now - self._told >= (IN_A_LOG if self._log else SECONDS):
            self._told = now
            text = f"watching: step {step:,}, {self._rows:,} rows"
            if self._line is not None:
                self._attempt(self._line.draw, text)
            else:
                self._attempt(_print, text)

    def close(self) -> None:
        """Takes the line away; a second time does nothing."""
        line, self._line = self._line, None
        if line is not None:
            self._attempt(line.close)

    def _attempt(self, show: Callable[..., None], *args: Any) -> None:
        try:
            show(*args)
        except Exception as error:  # a terminal that went away, say: training goes on
            self._line, self._log = None, False
            report("watch(progress=...)", show, error, "the line with the step is not shown any more")


class Line:
    """A line at the end of a terminal, gone as soon as somebody else writes there."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream
        self._is_there = False
        self._is_over = False
        self._heard = [Heard(one, self._before) for one in {id(one): one for one in (sys.stdout, stream)}.values()]

    def draw(self, text: str) -> None:
        """Shows the text in place of the one before, unless somebody else draws."""
        if self._is_over or another_bar():
            self._erase()
            return
        width = shutil.get_terminal_size().columns - 1
        self._write(f"{ERASED}{text[:width]}")
        self._is_there = True

    def close(self) -> None:
        """Takes the line away for good."""
        self._erase()
        self._is_over = True
        for heard in self._heard:
            heard.end()

    def _before(self, text: str) -> None:
        self._erase()
        self._is_over = self._is_over or DRAWING.search(text) is not None

    def _erase(self) -> None:
        if self._is_there:
            self._is_there = False
            self._write(ERASED)

    def _write(self, text: str) -> None:
        with suppress(OSError, ValueError):  # a terminal that was closed is no reason to end a training
            type(self._stream).write(self._stream, text)
            self._stream.flush()


class Heard:
    """Has `before(text)` called before a stream writes; an attribute of the stream that hides its method."""

    def __init__(self, stream: Any, before: Any) -> None:
        self._stream, self._before = stream, before
        self._inner = None if stream is None else stream.write
        with suppress(AttributeError, TypeError):  # a stream that can't be heard
            stream.write = self

    def __call__(self, text: Any) -> Any:
        if isinstance(text, str):
            self._before(text)
        assert self._inner is not None
        return self._inner(text)

    def end(self) -> None:
        """Takes the attribute away; where somebody has put theirs before it, it does nothing any more."""
        self._before = _nothing
        if getattr(self._stream, "__dict__", {}).get("write") is self:
            del self._stream.write


def another_bar() -> bool:
    """Whether a bar of tqdm runs, which may not have drawn since."""
    tqdm = getattr(sys.modules.get("tqdm.std"), "tqdm", None)
    return bool(len(getattr(tqdm, "_instances", ())))


def in_terminal() -> bool:
    """Whether somebody watches a terminal that is not a notebook's."""
    return sys.stderr is not None and sys.stderr.isatty() and "ipykernel" not in sys.modules


def draws_lines() -> bool:
    """Whether a line can be drawn over on standard error: in a terminal or a notebook."""
    return sys.stderr is not None and (sys.stderr.isatty() or "ipykernel" in sys.modules)


def _print(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _nothing(text: str) -> None:
    """What is done before a write when the line is over."""
