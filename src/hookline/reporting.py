"""Reporting: warnings of hookline's own. A user's function that raises is told once, by name, and ends nobody's
training."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any


class Held:
    """Warnings that are kept until somebody asks for them, in place of being shown."""

    def __init__(self) -> None:
        self._texts: dict[str, int] = {}

    def add(self, message: str) -> None:
        self._texts[message] = self._texts.get(message, 0) + 1

    def told(self) -> Iterator[str]:
        """Each once, with how often it came."""
        for text, count in self._texts.items():
            yield text if count == 1 else f"{text} ({count} times)"


_held: Held | None = None
_is_quiet: ContextVar[bool] = ContextVar("hookline_is_quiet", default=False)


def hold_warnings(wanted: bool = True) -> Held:
    """From now on, or no longer, warnings of hookline's own are held: nobody else's filters or files see them."""
    global _held
    _held = Held() if wanted else None
    return _held or Held()


@contextmanager
def quiet() -> Iterator[None]:
    """Within it, in this thread alone, nobody is warned: who reads the answer is told there.

    >>> with quiet():
    ...     warn("a part of the run can't be read")
    """
    before = _is_quiet.set(True)
    try:
        yield
    finally:
        _is_quiet.reset(before)


def warn(message: str, category: type[Warning] = UserWarning, *, stacklevel: int = 2) -> None:
    """Warns as `warnings.warn` would where this is called, unless warnings are held, or nobody is to be warned."""
    if _is_quiet.get():
        return
    if _held is not None:
        _held.add(message)
    else:
        warnings.warn(message, category, stacklevel=stacklevel + 1)


def name_of(fn: Any) -> str:
    """What a user would call this function.

    >>> name_of(len), name_of(print)
    ('len', 'print')
    """
    return str(getattr(fn, "__qualname__", None) or type(fn).__name__)


def report(what: str, fn: Any, error: Exception, then: str) -> None:
    """Warns that `what`, a function of a user's, raised, and what that means for the rest."""
    warn(f"{what} ({name_of(fn)}) raised {type(error).__name__}: {error}; {then}", stacklevel=3)
