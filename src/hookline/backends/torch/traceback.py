"""Traceback: how an exception's way through modules would look without hookline's hooks.

Where a module has hooks, torch calls its forward by another way (`inner`), which makes two entries of one. Where a
mode of hookline's looks at an operator, the operator is called by that, from Python.
"""

from __future__ import annotations

import dis
import linecache
from functools import cache
from pathlib import Path
from types import CodeType, TracebackType

import torch
from torch import nn

from hookline.backends.tap import Tap
from hookline.backends.torch.compat import MODULE_CALL

OURS = str(Path(__file__).parent.parent.parent) + "/"
OPERATOR_CALL = type(torch.ops.aten.relu.default).__call__.__code__
PLAIN_CALL = "return forward_call("


def plain_entries(entries: list[TracebackType]) -> list[TracebackType]:
    """The entries, where calls of modules whose hooks are all hookline's are as those of modules without any."""
    place = _place_of_the_plain_call(MODULE_CALL)
    found: list[TracebackType] = []
    for entry in entries:
        before = found[-1] if found else None
        if before is None or not (_is_by_the_way(before, entry) or _is_operator_of_ours(before, entry)):
            found.append(entry)
        elif place is not None and before.tb_frame.f_code is MODULE_CALL:
            found[-1] = TracebackType(None, before.tb_frame, *place)
    return found


def _is_operator_of_ours(before: TracebackType, entry: TracebackType) -> bool:
    """Whether it is the call of an operator by one of hookline's modes."""
    return entry.tb_frame.f_code is OPERATOR_CALL and before.tb_frame.f_code.co_filename.startswith(OURS)


def _is_by_the_way(before: TracebackType, entry: TracebackType) -> bool:
    if before.tb_frame.f_code is not MODULE_CALL or entry.tb_frame.f_code.co_name != "inner":
        return False
    module = before.tb_frame.f_locals.get("self")
    if entry.tb_frame.f_code.co_filename != MODULE_CALL.co_filename or not isinstance(module, nn.Module):
        return False
    held = [value for name, value in vars(module).items() if name.endswith("_hooks") and isinstance(value, dict)]
    calls = [hook for hooks in held for hook in hooks.values()]
    return all(isinstance(getattr(hook, "hook", hook), Tap) for hook in calls)


@cache
def _place_of_the_plain_call(code: CodeType) -> tuple[int, int] | None:
    """(offset, line) of the instruction that calls a forward without hooks; None where torch has no such line."""
    for instruction in dis.get_instructions(code):
        line = instruction.positions.lineno if instruction.positions is not None else None
        if line is None or not linecache.getline(code.co_filename, line).strip().startswith(PLAIN_CALL):
            continue
        if instruction.opname.startswith("CALL"):
            return instruction.offset, line
    return None
