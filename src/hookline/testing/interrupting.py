"""Interrupting: a KeyboardInterrupt at a line of hookline, any of them."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from types import FrameType
from typing import Any

import hookline
from hookline.backends.nouns import Model

SOURCE = str(Path(hookline.__file__).parent)
TESTING = str(Path(SOURCE, "testing"))

Place = tuple[str, str, int]
"""A line, and whether it was run when a block was entered, within it, or when it was left."""


def _never(frame: FrameType) -> bool:
    return False


class Action:
    """What is interrupted: something that is attached, used and taken off again; not where `spared(frame)`."""

    def __init__(
        self,
        block: Callable[[Any], AbstractContextManager[Any]],
        use: Callable[[Any], Any],
        spared: Callable[[FrameType], bool] = _never,
    ) -> None:
        self._block, self._use, self._spared = block, use, spared
        self.phase = ""

    def __call__(self, model: Model) -> None:
        self.phase = "enter"
        with self._block(model):
            self.phase = "use"
            self._use(model)
            self.phase = "leave"
        self.phase = ""

    def lines(self, model: Model) -> list[Place]:
        """Every line of hookline that it runs, as often as it does."""
        found: list[Place] = []

        def at_line(frame: FrameType, event: str, arg: Any) -> Any:
            if event == "line" and not self._spared(frame):
                found.append((self.phase, frame.f_code.co_filename.removeprefix(SOURCE), frame.f_lineno))
            return at_line

        _traced(at_line, lambda: self(model))
        return found

    def cut(self, model: Model, number: int) -> bool:
        """Runs it with a KeyboardInterrupt at that line, counted from 0; whether the interrupt came out."""
        return cut(number + 1, lambda: self(model), self._spared)


def cut(number: int, action: Callable[[], Any], spared: Callable[[FrameType], bool] = _never) -> bool:
    """Runs `action` with a KeyboardInterrupt at that line of hookline, counted from 1; whether it came out."""
    left = number

    def at_line(frame: FrameType, event: str, arg: Any) -> Any:
        nonlocal left
        if event == "line" and not spared(frame):
            left -= 1
            if left == 0:
                sys.settrace(None)
                raise KeyboardInterrupt
        return at_line

    try:
        _traced(at_line, action)
    except KeyboardInterrupt:
        return True
    return False


def _traced(at_line: Callable[..., Any], action: Callable[[], Any]) -> None:
    def at_call(frame: FrameType, event: str, arg: Any) -> Any:
        file = frame.f_code.co_filename
        return at_line if file.startswith(SOURCE) and not file.startswith(TESTING) else None

    before = sys.gettrace()
    sys.settrace(at_call)
    try:
        next(_apart(action))
    finally:
        sys.settrace(before)


def _apart(action: Callable[[], Any]) -> Iterator[Any]:
    """Runs `action` in a generator, which has an account of its own of the exceptions that are being handled.

    Python 3.11 does not take one off the account where a trace function raises in the last line of its `except`:
    it would seem to be handled for ever, and a run that ends long after to have ended by it.
    """
    yield action()
