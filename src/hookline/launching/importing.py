"""Importing: who wants to know when a package is there, which nobody imports for that.

While the package is imported, no frame of ours is on the stack: warnings and tracebacks of its import are as ever.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

from hookline.backends.undoing import Undoing


def when_imported(undoing: Undoing, package: str, tell: Callable[[], None]) -> None:
    """Calls `tell` once, when the package has been imported: now, if it is there."""
    if package in sys.modules:
        tell()
        return
    finder = _Finder(package, tell)
    undoing.noted(finder.leave)
    sys.meta_path.insert(0, finder)


class _Finder:
    """The first in `sys.meta_path`: has the others find the package, and waits for the end of its import."""

    def __init__(self, package: str, tell: Callable[[], None]) -> None:
        self._package, self._tell = package, tell

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name != self._package:
            return None
        for other in sys.meta_path:
            find = None if other is self else getattr(other, "find_spec", None)
            spec: ModuleSpec | None = None if find is None else find(name, path, target)
            if spec is not None:
                _told_of(spec, self._imported)
                return spec
        return None

    def _imported(self) -> None:
        if self._package in sys.modules:  # else its import failed, and may be tried again
            self.leave()
            self._tell()

    def leave(self) -> None:
        """Looks for nothing any more; a second time does nothing."""
        if self in sys.meta_path:
            sys.meta_path.remove(self)


class _ToldSpec(ModuleSpec):
    """A spec that tells when its module is no longer being made; then it is a plain one."""

    def __setattr__(self, name: str, value: Any) -> None:
        super().__setattr__(name, value)
        if name == "_initializing" and not value:
            tell = self.__dict__.pop("_hookline_tell", None)
            self.__class__ = ModuleSpec  # type: ignore[assignment]
            if tell is not None:
                tell()


def _told_of(spec: ModuleSpec, tell: Callable[[], None]) -> None:
    """Has `tell` called when the module of this spec was made, or could not be."""
    if type(spec) is ModuleSpec:
        spec.__dict__["_hookline_tell"] = tell
        spec.__class__ = _ToldSpec
