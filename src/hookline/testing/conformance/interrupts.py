"""Checks of interrupts: Ctrl-C at any line of hookline's, while something is attached or taken off."""

from __future__ import annotations

import gc
import random
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import hookline
from hookline.backends.nouns import Model
from hookline.testing.conformance.adapter import Adapter, ramp
from hookline.testing.conformance.checking import check, equal
from hookline.testing.interrupting import Action

X = ramp(2, 3)
LINES = 12
"""So many lines are interrupted while a block is entered, and as many while it is left."""


def _cut(adapter: Adapter, name: str, block: Callable[[Any], Any]) -> None:
    def use(model: Model) -> None:
        equal(adapter.run(model, X), X * 30, adapter)

    # How many lines a run takes is not the same each time, where code is compiled in one and found in the next.
    # An interrupt that was meant for the end would come within it, where frameworks have a model in pieces.
    action = Action(block, use, lambda frame: action.phase == "use")
    action(adapter.build("chain"))  # what is loaded or compiled at first use is not to be interrupted
    lines = action.lines(adapter.build("chain"))
    order = list(range(len(lines)))
    random.Random(name).shuffle(order)
    by_place = {lines[number]: number for number in order}  # no line twice
    for phase in ("enter", "leave"):
        for place, number in [(at, n) for at, n in by_place.items() if at[0] == phase][:LINES]:
            model = adapter.build("chain")
            with _silence():
                came_out = action.cut(model, number)
            assert hookline.installed(model) == [], (name, place, came_out)
            equal(adapter.run(model, X), X * 30, adapter)
            action(model)  # and nothing keeps it from being attached again
            assert hookline.installed(model) == [], (name, place, came_out)


@contextmanager
def _silence() -> Iterator[None]:
    """Nothing is said of interrupts that Python drops in finalizers, and of blocks that were never entered."""
    before, sys.unraisablehook = sys.unraisablehook, lambda dropped: None
    collects = gc.isenabled()
    gc.disable()  # so that what is made in here is young, and found at the end
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
            gc.collect(0)  # a block that was cut short while it was made says so when it dies
    finally:
        sys.unraisablehook = before
        if collects:
            gc.enable()


def _told(*values: Any) -> None:
    return None


@check("record")
def an_interrupt_while_a_recording_begins_or_ends_leaves_nothing(adapter: Adapter) -> None:
    _cut(adapter, "record", lambda model: hookline.record(model, inputs=True))


@check("edit")
def an_interrupt_while_an_edit_begins_or_ends_leaves_nothing(adapter: Adapter) -> None:
    edits = {"first": lambda output: output, "block:input": lambda args: args}
    _cut(adapter, "edit", lambda model: hookline.edit(model, edits))


@check("watch")
def an_interrupt_while_a_watch_begins_or_ends_leaves_nothing(adapter: Adapter) -> None:
    _cut(adapter, "watch", lambda model: hookline.watch(model, progress=False))


@check("forward", "forward_pre")
def an_interrupt_while_a_hook_is_placed_or_removed_leaves_nothing(adapter: Adapter) -> None:
    _cut(adapter, "hook", lambda model: hookline.register_forward_hook(model, _told, "**"))
    _cut(adapter, "pre-hook", lambda model: hookline.register_forward_pre_hook(model, _told, "**"))


@check("backward")
def an_interrupt_while_a_backward_hook_is_placed_or_removed_leaves_nothing(adapter: Adapter) -> None:
    _cut(adapter, "backward", lambda model: hookline.register_backward_hook(model, _told, "**"))


@check("ops")
def an_interrupt_while_an_op_hook_is_placed_or_removed_leaves_nothing(adapter: Adapter) -> None:
    _cut(adapter, "ops", lambda model: hookline.register_op_hook(model, _told))
