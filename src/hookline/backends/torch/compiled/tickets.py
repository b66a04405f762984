"""Tickets: the gradients of a module call that a graph is running.

Inside a graph tensors have no history. What a tap asks to hear is kept with a *ticket*, a tensor that the graph
carries from the call to its backward, where the doors for gradients find it again. Tickets live as long as the
graph's own saved tensors do, so nothing is left over of a call that has no backward.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from contextlib import ExitStack
from typing import Any

import torch

from hookline.backends.protocol import GradSink, JointSink
from hookline.backends.torch.compat import graph_task
from hookline.backends.undoing import stacked


class Ticket:
    """One look through a door: which tensors need gradients, and who wants to hear these."""

    __slots__ = ("graph", "joint", "live", "sink")

    def __init__(self, live: tuple[bool, ...]) -> None:
        self.live = live
        self.sink: GradSink | None = None
        self.joint: JointSink | None = None
        self.graph: Any = None

    def tensor(self) -> torch.Tensor:
        """What a graph carries of it."""
        tensor = torch.zeros((), dtype=torch.int64)
        tensor.hookline_ticket = self  # type: ignore[attr-defined]
        return tensor

    def jointly(self, grads: dict[int, Any]) -> dict[int, Any]:
        """What the joint sink makes of the gradients, by the numbers of their places."""
        if self.sink is not None:
            for number, grad in grads.items():
                self.sink([number], grad)
        if self.joint is None:
            return grads
        new = self.joint([grads.get(number) for number in range(len(self.live))])
        return grads if new is None else {number: new[number] for number in grads}


def ticket_of(tensor: torch.Tensor) -> Ticket | None:
    """The ticket that a graph has carried here."""
    return getattr(tensor, "hookline_ticket", None)


class _Looks(threading.local):
    ticket: Ticket | None = None
    """The look that is under way in this thread; None where code runs as it is written."""


looks = _Looks()


@stacked
def looking(stack: ExitStack, ticket: Ticket) -> None:
    """A block in which a tap looks, with this ticket."""
    stack.callback(setattr, looks, "ticket", looks.ticket)
    looks.ticket = ticket


class GraphPassage:
    """One call's way through a module in a graph: a `Listening` and a `Joining` at once.

    As in code that runs as written, gradients of inputs count in a backward that brings one to an output.
    """

    remark: str | None = None

    def __init__(self, on_input: GradSink | None, joint: JointSink | None, on_output: GradSink) -> None:
        self._on_input, self._joint, self._on_output = on_input, joint, on_output
        self._told_in: int | None = None  # the last backward in which an output had a gradient
        self._early: list[tuple[int, Sequence[int], Any]] = []
        self.live = 0

    def enter(self, args: Any, kwargs: Any) -> tuple[Any, Any]:
        ticket = looks.ticket
        assert ticket is not None
        ticket.sink = None if self._on_input is None else self._hear_input
        ticket.joint = None if self._joint is None else self._ask
        self.live = sum(ticket.live)
        return args, kwargs

    def leave(self, output: Any, call: int, references: int) -> Any:
        ticket = looks.ticket
        if ticket is not None:
            ticket.sink = self._hear_output
        return output

    def _hear_output(self, numbers: Sequence[int], grad: Any) -> None:
        self._told_in = task = graph_task()
        self._on_output(numbers, grad)
        early, self._early = self._early, []
        for came_in, places, came in early:
            if came_in == task:
                self._hear_input(places, came)

    def _hear_input(self, numbers: Sequence[int], grad: Any) -> None:
        assert self._on_input is not None
        task = graph_task()
        if self._told_in == task:
            self._on_input(numbers, grad)
        else:
            self._early = [*(one for one in self._early if one[0] == task), (task, numbers, grad)]

    def _ask(self, grads: list[Any]) -> list[Any] | None:
        assert self._joint is not None
        return self._joint(grads) if self._told_in == graph_task() else None
