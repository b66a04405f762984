"""Calling: the line of a model's code at which a module is called."""

from __future__ import annotations

import contextlib
import functools
import sys
from functools import cache
from pathlib import Path
from types import FrameType

import hookline.errors
from hookline.backends.capabilities import capabilities

HERE = str(Path(hookline.errors.__file__).parent)
MODELS = tuple(str(Path(HERE, folder)) for folder in ("testing", "examples"))
"""Folders of hookline in which there are models."""


def calling_line() -> str:
    """`file.py:12` of the nearest caller outside of hookline and the frameworks; "" where there is none."""
    libraries = _libraries()
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        path = frame.f_code.co_filename
        if path.startswith(MODELS) or not path.startswith(libraries):
            return f"{Path(path).name}:{frame.f_lineno}"
        frame = frame.f_back
    return ""


@cache
def _libraries() -> tuple[str, ...]:
    """Where hookline, the frameworks that are loaded, and decorators lie."""
    roots = [root for framework in capabilities().values() for root in framework.roots]
    loaded = [getattr(sys.modules.get(root), "__file__", None) for root in roots]
    return (HERE, contextlib.__file__, functools.__file__, *(str(Path(path).parent) for path in loaded if path))
