"""Unheard: what a passage is where `_simple.c` was not compiled: none is simple, each is looked up."""

from __future__ import annotations

from typing import Any

from hookline.backends.torch.grads.ports import ONLY
from hookline.backends.torch.grads.threads import here, threads


class Unheard:
    """Has what a `_simple.Simple` has, and leaves all calls to those who go on with what is not plain."""

    on_output = joint_out = remark = marks = entered = sent = None
    simple = True
    by_ledger = mixed = of_leaf = False
    told_in = -2
    live = places_in = places_out = start = group = before = output_nr = 0
    span = 0, 0
    inputs = outputs = ()
    numbers = ONLY

    def __init__(self, sink: Any = None, joint: bool = False) -> None:
        self.sink, self.joint = sink, joint

    def enter(self, args: Any, kwargs: Any) -> Any:
        self._note_thread()
        self.before = here.now.looked_up
        return self.enter_anyhow(args, kwargs)  # type: ignore[attr-defined]

    def leave(self, output: Any, call: int, references: int) -> Any:
        if not self.start:
            self._note_thread()
        return self.leave_anyhow(output, call, references)  # type: ignore[attr-defined]

    def hear(self, thread: Any, node: Any, output_nr: int, end: int) -> bool:
        return False

    def _note_thread(self) -> None:
        if not here.now.is_main:
            threads.note()
