"""source: the code of a module's forward, with its file and line."""

from __future__ import annotations

import functools
import inspect
import textwrap
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from hookline.backends import resolve
from hookline.backends.nouns import Module


@dataclass(frozen=True, slots=True)
class Source:
    """Code and where it stands; `file` and `line` are None where there is no Python code, and `note` says why.

    Printed, it has a line with all that before the code.
    """

    name: str
    text: str
    file: str | None
    line: int | None
    note: str = ""

    def __str__(self) -> str:
        where = f"{self.file}:{self.line}" if self.file is not None else "no Python source"
        return (
            f"# {self.name}, {where}" + (f"\n# {self.note}" if self.note else "") + f"\n{self.text}".rstrip("\n")
        )


def source(module: Module) -> Source:
    """The Source of the forward of `module`, the code that a call of it runs; of a function, its own.

    Inherited forwards name the class that has them, decorated ones are shown without the decorator's
    wrapper. A forward written in C has no source, and the result says so.

    >>> import torch
    >>> found = source(torch.nn.Identity())
    >>> print(found.text)
    def forward(self, input: Tensor) -> Tensor:
        \"\"\"
        Runs the forward pass.
        \"\"\"
        return input
    >>> found.name, found.file.rpartition("/")[2]
    ('Identity.forward', 'linear.py')
    """
    notes: list[str] = []
    function: Any
    if inspect.isroutine(module):
        function, name = module, getattr(module, "__qualname__", repr(module))
    else:
        backend = resolve(module)
        backend.framework.need("source")
        function, owner = backend.forward_of(module)
        name = f"{owner}.{backend.forward_name}"
        kind = type(module).__name__
        if owner.startswith("this "):
            name = f"{kind}.{backend.forward_name}"
            notes.append(f"replaced on this very object; the class's own is {name}")
        elif owner != kind:
            notes.append(f"{kind} inherits it from {owner}")
        script = getattr(module, "code", None)
        if isinstance(script, str) and type(module).__module__.startswith("torch.jit"):
            return Source(name, script.rstrip(), None, None, "TorchScript, as it was compiled")
    inner = _inner(function)
    if inner is not function:
        notes.append(f"inside {_title(function)}, which calls it")
    return _read(inner, name, notes)


def _inner(function: Any) -> Any:
    """The function that a decorator, a partial or a bound method wraps."""
    while True:
        if isinstance(function, (staticmethod, classmethod)) or inspect.ismethod(function):
            function = function.__func__
        elif isinstance(function, functools.partial):
            function = function.func
        elif hasattr(function, "__wrapped__"):
            function = function.__wrapped__
        elif (wrapped := _closed_over(function)) is not None:
            function = wrapped
        else:
            return function


def _closed_over(function: Any) -> Callable[..., Any] | None:
    """The forward that a wrapper without functools.wraps calls: a function of that name in its closure."""
    for cell in getattr(function, "__closure__", None) or ():
        try:
            content = cell.cell_contents
        except ValueError:  # a variable that is not set yet
            continue
        content = getattr(content, "__func__", content)
        if inspect.isfunction(content) and content is not function and content.__name__ == "forward":
            return content
    return None


def _read(function: Any, name: str, notes: list[str]) -> Source:
    code = getattr(function, "__code__", None)
    if code is None and not inspect.isclass(function) and callable(function) and not inspect.isroutine(function):
        call = type(function).__call__
        if inspect.isfunction(call):
            return _read(call, name, [*notes, f"a {type(function).__name__} object, which is called"])
    if code is None:
        title = _title(function)
        notes.append(f"{title} is a C function: it has no Python source")
        return Source(name, f"# {title} is implemented in C", None, None, "; ".join(notes))
    try:
        lines, line = inspect.getsourcelines(function)
    except (OSError, TypeError):
        notes.append(f"{code.co_filename} can't be read: it was typed in, or has gone")
        return Source(name, "# the source is not to be had", None, None, "; ".join(notes))
    text = textwrap.dedent("".join(lines)).rstrip()
    return Source(name, text, inspect.getsourcefile(function) or code.co_filename, line, "; ".join(notes))


def _title(function: Any) -> str:
    name = getattr(function, "__qualname__", None) or getattr(function, "__name__", type(function).__name__)
    return f"{getattr(function, '__module__', None) or 'builtins'}.{name}"
