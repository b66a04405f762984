"""Crash: where in a model an exception came up, from its traceback."""

from __future__ import annotations

import linecache
from collections.abc import Iterable
from pathlib import Path
from types import TracebackType
from typing import Any

from hookline.diagnosis.finding import Finding
from hookline.launching.frames import entries_of, is_library
from hookline.launching.models import Model

LONGEST = 200
"""So many characters of an error's message, or of a line of code, are told."""


def crash_of(error: BaseException, models: Iterable[Model]) -> tuple[Model | None, Finding]:
    """The model in which it came up, if it was in one, and a finding that tells the place."""
    entries = list(entries_of(error.__traceback__))
    line = _users_line(entries)
    said = f"{type(error).__name__}: {error}".split("\n")[0][:LONGEST]
    for at in reversed(range(len(entries))):
        owner = entries[at].tb_frame.f_locals.get("self")
        for model in models if owner is not None else ():
            name = model.part_named(owner)
            if name is not None:
                return model, _in_module(model, name, owner, entries, at, line, said)
    first = next((one for one in models if not one.is_over), None)
    in_backward = any(one.tb_frame.f_code.co_name == "_engine_run_backward" for one in entries)
    where = "in the backward" if in_backward else "outside of the model's modules"
    why = f"the script ended {where}, by {said}"
    return first, _finding("", why, line, first, error=said)


def _in_module(
    model: Model, name: str, module: Any, entries: list[TracebackType], at: int, line: str, said: str
) -> Finding:
    calls = [one.tb_frame.f_locals for one in entries[: at + 1] if one.tb_frame.f_locals.get("self") is module]
    inputs = next((told(one["args"]) for one in reversed(calls) if isinstance(one.get("args"), tuple)), "")
    innermost = entries[at]
    code = linecache.getline(innermost.tb_frame.f_code.co_filename, innermost.tb_lineno).strip()[:LONGEST]
    kind = type(module).__name__
    what = f"{name or 'the model'} ({kind})"
    got = f", whose inputs were {inputs}" if inputs else ""
    why = f"the script ended in {what}{got}, at `{code}`, by {said}"
    return _finding(name, why, line, model, error=said, inputs=inputs, code=code, module=kind)


def _finding(name: str, why: str, line: str, model: Model | None, **evidence: str) -> Finding:
    step = 0 if model is None or model.watch is None else int(model.watch.now)
    advice = "Compare the shapes and types that come in with what the module expects." if name else ""
    return Finding("crash", "error", name, step, why, evidence, advice, line)


def told(value: Any) -> str:
    """Values by their types and shapes, as one line.

    >>> told((1, [None, "a"]))
    'int, [NoneType, str]'
    """
    if isinstance(value, tuple):
        return ", ".join(map(told, value))
    if isinstance(value, list):
        return f"[{', '.join(map(told, value))}]"
    if isinstance(value, dict):
        return f"{{{', '.join(f'{key}: {told(one)}' for key, one in value.items())}}}"
    if hasattr(value, "shape") and hasattr(value, "dtype"):
        return f"{str(value.dtype).rpartition('.')[2]}{list(value.shape)}"
    return type(value).__name__


def _users_line(entries: list[TracebackType]) -> str:
    """`train.py:12`: the innermost line that is nobody's library."""
    for entry in reversed(entries):
        file = entry.tb_frame.f_code.co_filename
        if not is_library(file):
            return f"{Path(file).name}:{entry.tb_lineno}"
    return ""
