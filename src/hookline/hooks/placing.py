"""Placing: what every call that attaches something does first."""

from __future__ import annotations

import inspect
import sys
from pathlib import Path
from types import FrameType
from typing import Any

from hookline.errors import InvalidArgument

HERE = str(Path(__file__).parent.parent)


def callers_frame() -> FrameType:
    """The nearest caller outside hookline."""
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_code.co_filename.startswith(HERE):
        frame = frame.f_back
    return frame


def callers_line() -> str:
    """`file.py:12` of the nearest caller outside hookline: who attached something."""
    frame = callers_frame()
    return f"{Path(frame.f_code.co_filename).name}:{frame.f_lineno}"


def needs_callable(who: str, what: str, thing: Any, count: int) -> None:
    """InvalidArgument where `thing` can't be called with `count` positional arguments."""
    if not callable(thing):
        raise InvalidArgument(f"{who} needs a function for {what}, a {type(thing).__name__} came: {thing!r}.")
    try:
        signature = inspect.signature(thing)
    except (ValueError, TypeError):  # some C functions tell nothing about themselves
        return
    try:
        signature.bind(*[None] * count)
    except TypeError as error:
        name = getattr(thing, "__qualname__", type(thing).__name__)
        raise InvalidArgument(
            f"{who} calls its {what} with {count} argument{'s' if count != 1 else ''}, and "
            f"{name}{signature} can't take that: {error}."
        ) from None
