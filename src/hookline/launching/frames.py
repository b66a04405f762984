"""Frames: a traceback without the frames that hookline put on the stack."""

from __future__ import annotations

import contextlib
import site
import sys
import sysconfig
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from types import TracebackType

OURS = str(Path(__file__).parent.parent) + "/"

Plain = Callable[[list[TracebackType]], list[TracebackType]]
"""Gives the entries of a traceback, hookline's own among them, as they would be without its hooks."""
plain_entries: list[Plain] = []
"""What the frameworks in use know of that."""


def cleaned(error: BaseException, *, after: str = "") -> BaseException:
    """The error, whose traceback and those of what it came from have no frame of hookline's any more.

    `after` is a file: everything in the first traceback up to its last entry of that file goes as well.
    """
    for one in _chain(error):
        entries = list(entries_of(one.__traceback__))
        if after and one is error:
            last = max((at for at, each in enumerate(entries) if _file(each) == after), default=-1)
            entries = entries[last + 1 :]
        for as_they_would_be in plain_entries:
            entries = as_they_would_be(entries)
        one.__traceback__ = _linked(_not_ours(entries))
    return error


def _not_ours(entries: list[TracebackType]) -> list[TracebackType]:
    found: list[TracebackType] = []
    after_ours = False
    for entry in entries:
        file = _file(entry)
        # Contexts of ours that are around a function are run by the standard library.
        after_ours = file.startswith(OURS) or (after_ours and file == contextlib.__file__)
        found += [] if after_ours else [entry]
    return found


def _chain(error: BaseException) -> Iterator[BaseException]:
    seen: set[int] = set()
    waiting: list[BaseException | None] = [error]
    while waiting:
        one = waiting.pop()
        if one is None or id(one) in seen:
            continue
        seen.add(id(one))
        yield one
        waiting += [one.__cause__, one.__context__]
        if isinstance(one, BaseExceptionGroup):
            waiting += one.exceptions


def entries_of(trace: TracebackType | None) -> Iterator[TracebackType]:
    while trace is not None:
        yield trace
        trace = trace.tb_next


def _file(entry: TracebackType) -> str:
    return entry.tb_frame.f_code.co_filename


def _linked(entries: list[TracebackType]) -> TracebackType | None:
    """One traceback of these entries."""
    linked: TracebackType | None = None
    for entry in reversed(entries):
        linked = TracebackType(linked, entry.tb_frame, entry.tb_lasti, entry.tb_lineno)
    return linked


def is_library(file: str) -> bool:
    """Whether a file is no part of what the user wrote: of a package that was installed, or of Python itself."""
    return file.startswith(("<frozen", OURS, *_libraries()))


@cache
def _libraries() -> tuple[str, ...]:
    paths = sysconfig.get_paths()
    known = [*site.getsitepackages(), site.getusersitepackages(), paths["stdlib"], paths["platstdlib"]]
    known += [one for one in sys.path if one.endswith(("site-packages", "dist-packages"))]
    return tuple({one.rstrip("/") + "/" for one in known})
