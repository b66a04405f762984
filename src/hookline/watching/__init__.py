"""Watching: follows a training step by step.

The room has the name of a public verb, `hookline.watching()`, and once it is imported it stands where that is
looked up. So it can be called, and leads there.
"""

from __future__ import annotations

import importlib
import sys
from types import ModuleType
from typing import Any


class _Room(ModuleType):
    def __call__(self, *args: Any, **options: Any) -> Any:
        return importlib.import_module("hookline.launching.inside").watching(*args, **options)


sys.modules[__name__].__class__ = _Room
