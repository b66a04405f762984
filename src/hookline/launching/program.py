"""Program: a script or a module, run in this process as `python` itself would run it.

What a script can see of how it was started is as without us: `__main__`, `__file__`, `sys.argv`, `sys.path[0]`. So
its classes can be pickled, and processes that it spawns find it.
"""

from __future__ import annotations

import importlib.machinery
import importlib.util
import os
import pkgutil
import runpy
import sys
from collections.abc import Sequence
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

from hookline.errors import InvalidArgument

HELD: list[Any] = []
"""What was `__main__` before: Python takes a module apart that nobody holds."""


class Program:
    """What comes after `hookline run`: the script, or with `is_module` the module, and its own arguments.

    InvalidArgument where there is no such script, or it can't be read.
    """

    def __init__(self, name: str, args: Sequence[str] = (), *, is_module: bool = False) -> None:
        self.name, self.args, self.is_module = name, list(args), is_module
        self.label = name.rpartition(".")[2] if is_module else Path(name).resolve().stem
        """What the script is called, in the name of its run's folder."""
        self._runs_folder = False
        if not is_module:
            self._check(Path(name))

    def _check(self, path: Path) -> None:
        if path.is_dir() or path.suffix in (".zip", ".pyz"):
            self._runs_folder = (path / "__main__.py").is_file() or _is_runnable_archive(path)
            if not self._runs_folder:
                raise InvalidArgument(
                    f"{self.name!r} is no script: expected a file, or a folder with __main__.py."
                )
            return
        if not path.exists():
            elsewhere = " Write -m in front of a module's name." if not path.suffix else ""
            raise InvalidArgument(f"there is no script {self.name!r} in {Path.cwd()}.{elsewhere}")
        try:
            with path.open("rb") as file:
                file.read(1)
        except OSError as error:
            raise InvalidArgument(f"the script {self.name!r} can't be read: {error.strerror}.") from error

    def run(self) -> None:
        """Runs it, in a `__main__` of its own. What it raises comes out, SystemExit too."""
        HELD.append(sys.modules["__main__"])
        main = sys.modules["__main__"] = _fresh_main()
        if self.is_module:
            _begin_path_with(str(Path.cwd()))
            sys.argv[:] = ["-m", *self.args]
            runpy._run_module_as_main(self.name)  # type: ignore[attr-defined]  # what `python -m` calls
            return
        sys.argv[:] = [self.name, *self.args]
        if self._runs_folder:
            _begin_path_with(self.name)
            runpy._run_module_as_main("__main__", False)  # type: ignore[attr-defined]
            return
        _begin_path_with(str(Path(self.name).resolve().parent))
        file = _absolute(self.name)
        main.__dict__.update(__file__=file, __cached__=None)
        try:
            exec(_code(main, file), main.__dict__)
        finally:  # as Python does: functions that run later, by atexit, don't have it either
            for name in ("__file__", "__cached__"):
                main.__dict__.pop(name, None)


def _fresh_main() -> ModuleType:
    """A module as Python makes `__main__`."""
    main = ModuleType("__main__")
    main.__dict__["__builtins__"] = sys.modules["builtins"]
    main.__loader__ = importlib.machinery.BuiltinImporter
    if "__annotations__" in vars(HELD[0]):  # Python before 3.14 begins with an empty one
        main.__annotations__ = {}
    return main


def _code(main: ModuleType, file: str) -> CodeType:
    if file.endswith(".pyc"):
        sourceless = importlib.machinery.SourcelessFileLoader("__main__", file)
        main.__loader__ = sourceless
        code = sourceless.get_code("__main__")
        assert code is not None
        return code
    main.__loader__ = importlib.machinery.SourceFileLoader("__main__", file)
    return compile(Path(file).read_bytes(), file, "exec", dont_inherit=True)


def _begin_path_with(folder: str) -> None:
    """Where Python looks first: the script's folder, in place of that of the program `hookline`."""
    if not sys.flags.safe_path:
        sys.path[0] = folder


def _absolute(name: str) -> str:
    """As Python has it: what leads nowhere (`./`) stays.

    >>> _absolute("/a/./b.py")
    '/a/./b.py'
    """
    return name if name.startswith(os.sep) else f"{Path.cwd()}{os.sep}{name}"


def _is_runnable_archive(path: Path) -> bool:
    importer = pkgutil.get_importer(str(path)) if path.is_file() else None
    found = getattr(importer, "find_spec", None)
    return found is not None and found("__main__") is not None
