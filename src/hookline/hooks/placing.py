"""Placing: what every call that attaches something does first."""

from __future__ import annotations

import inspect
import sys
import warnings
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


def renamed(verb: str, old: str, value: Any, new: str, given: bool) -> Any:
    """`value` of the argument `old`, which is called `new` now; warns at the caller's line.

    InvalidArgument where `new` was `given` as well.
    """
    if given:
        raise InvalidArgument(f"{verb}({old}=..., {new}=...): these are one argument; give {new}= alone.")
    frame = callers_frame()
    warnings.warn_explicit(
        f"{verb}({old}=...) goes with the next version: it is {new}= now.",
        DeprecationWarning,
        frame.f_code.co_filename,
        frame.f_lineno,
        module=frame.f_globals.get("__name__"),  # Python shows such warnings of a user's own script
        registry=frame.f_globals.setdefault("__warningregistry__", {}),
    )
    return value


def needs_callable(who: str, what: str, thing: Any, count: int) -> None:
    """InvalidArgument where `thing` can't be called with `count` positional arguments."""
    if not callable(thing):
        raise InvalidArgument(f"{who}: expected a function for {what}, got a {type(thing).__name__}: {thing!r}.")
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
