"""Reporting: a user's function that raises is told once, by name, and ends nobody's training."""

from __future__ import annotations

import warnings
from typing import Any


def name_of(fn: Any) -> str:
    """What a user would call this function.

    >>> name_of(len), name_of(print)
    ('len', 'print')
    """
    return str(getattr(fn, "__qualname__", None) or type(fn).__name__)


def report(what: str, fn: Any, error: Exception, then: str) -> None:
    """Warns that `what`, a function of a user's, raised, and what that means for the rest."""
    warnings.warn(f"{what} ({name_of(fn)}) raised {type(error).__name__}: {error}; {then}", stacklevel=3)
