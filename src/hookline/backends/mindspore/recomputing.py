"""Recomputing: `cell.recompute()` and `ms.recompute` run a forward once more in the backward.

Which forward that is, MindSpore tells nobody; the frames of its own code on the stack do.
"""

from __future__ import annotations

import sys
from types import FrameType
from typing import Any

from hookline.backends.mindspore import compat


def in_recompute(called: bool = False) -> bool:
    """Whether the forward under way repeats an earlier one."""
    return _frame(compat.REPEATS) is not None


def sequence_number() -> int:
    """A number for the stretch of a forward that will be repeated as a whole; 0 outside of any."""
    frame = _frame({compat.STRETCH})
    return 0 if frame is None else _number(frame, 0)


def recomputed(calls: list[Any]) -> Any:
    """The call of a site that the forward under way repeats: those of a stretch are repeated in their order.

    None where the stretch ran with gradients the first time, whose taps are still there.
    """
    frame = _frame(compat.REPEATS)
    if frame is None or frame.f_code is not compat.REPEATED_STRETCH:
        return None
    number, run = _number(frame, 1), id(frame)
    for call in calls:
        if call.sequence == number and call.repeated_in != run:
            call.repeated_in = run
            return call
    return None


def _frame(codes: Any) -> FrameType | None:
    frame: FrameType | None = sys._getframe(2)
    while frame is not None:
        if frame.f_code in codes:
            return frame
        frame = frame.f_back
    return None


def _number(frame: FrameType, taken: int) -> int:
    """Of a cell that repeats another: its calls under way are a stack, from which a backward has `taken` one."""
    cell = frame.f_locals["self"]
    return hash((id(cell), len(cell.args) + taken))
