"""Returns: whether a user's hook only looks, which must be known before it is called in code that is traced.

A hook that returns something is traced; one that returns nothing gets real values. To call it once with traced
values and see would show it a value that is none: a hook that keeps what it is told would keep a tracer. So a
function says it by its annotation, `-> None`; of one that says nothing its code is read, and taken for a hook that
looks only where nothing else is possible. All others are called once, to see.
"""

from __future__ import annotations

import dis
import inspect
import itertools
import types
from collections import deque
from collections.abc import Callable
from typing import Any


def never_returns(hook: Callable[..., Any]) -> bool:
    """Whether a function certainly returns nothing but None.

    >>> def says_so(module, args, output) -> None: ...
    >>> seen = []
    >>> never_returns(says_so), never_returns(lambda x: seen.append(x)), never_returns(lambda x: x * 2)
    (True, True, False)
    """
    function: Any = hook.__func__ if isinstance(hook, types.MethodType) else hook
    if not isinstance(function, types.FunctionType):
        function = type(hook).__call__
        return isinstance(function, types.FunctionType) and _declares_none(function)
    return _declares_none(function) or _has_no_value_to_return(function)


def _declares_none(function: types.FunctionType) -> bool:
    return function.__annotations__.get("return", ...) in (None, "None")


def _has_no_value_to_return(function: types.FunctionType) -> bool:
    """It has no `return` with a value, or all it does is to print or to put something into a collection."""
    if function.__code__.co_flags & _SUSPENDS:
        return False
    steps = [step for step in dis.get_instructions(function) if step.opname not in _PRELUDE]
    if len(steps) > 3 and steps[-1].opname == "RETURN_VALUE" and steps[-2].opname in ("CALL", "CALL_FUNCTION"):
        return not any("JUMP" in step.opname for step in steps) and _gives_none(function, *steps[:2])
    ends = [(before, step) for before, step in itertools.pairwise(steps) if step.opname.startswith("RETURN_")]
    return bool(ends) and all(
        step.argval is None
        if step.opname == "RETURN_CONST"
        else before.opname == "LOAD_CONST" and before.argval is None
        for before, step in ends
    )


_SUSPENDS = inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR
_PRELUDE = {"RESUME", "COPY_FREE_VARS", "PUSH_NULL", "PRECALL", "CACHE"}
_FILLING: dict[Any, set[str]] = {
    list: {"append", "extend", "insert"},
    deque: {"append", "extend", "appendleft"},
    set: {"add", "update"},
    dict: {"update", "__setitem__"},
}


def _gives_none(function: types.FunctionType, first: dis.Instruction, second: dis.Instruction) -> bool:
    """Whether a function of one expression begins with the name of something whose call gives None."""
    if first.opname == "LOAD_GLOBAL" and first.argval == "print":
        return True
    known = {**function.__globals__, **inspect.getclosurevars(function).nonlocals}
    thing = known.get(first.argval) if first.opname in ("LOAD_GLOBAL", "LOAD_DEREF") else None
    return second.opname in ("LOAD_METHOD", "LOAD_ATTR") and second.argval in _FILLING.get(type(thing), set())
