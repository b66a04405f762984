"""Tracing: what goes into each module and comes out of it in one forward, and who called whom."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
from torch import nn

from hookline.backends.torch.modules import walk
from hookline.backends.undoing import Undoing
from hookline.trees import leaves

Tensors = list[torch.Tensor]


class Link(NamedTuple):
    """Where a tensor hangs in the graph, now: an operation that writes to it moves it."""

    node: Any
    leaf: int
    is_float: bool
    tensor: torch.Tensor


@dataclass
class Seen:
    """One call of a module: copies of the tensors that came in and went out."""

    name: str
    caller: Seen | None
    inputs: Tensors
    outputs: Tensors = field(default_factory=list)
    came: list[Link] = field(default_factory=list)
    went: list[Link] = field(default_factory=list)
    """Where the tensors hang in the graph, where that is to be looked at; they are not copied then."""
    grad_enabled: bool = True


class Trace:
    """The calls of a forward in the order in which they ended, so a module comes after its parts."""

    def __init__(self) -> None:
        self.calls: list[Seen] = []
        self.under_way: list[Seen] = []

    def pairs(self, other: Trace) -> Iterator[tuple[Seen, Seen]]:
        """The calls that are in both, by name and number: another input may take another way."""
        there: dict[tuple[str, int], Seen] = dict(_numbered(other.calls))
        for key, call in _numbered(self.calls):
            if key in there:
                yield call, there[key]


def _numbered(calls: list[Seen]) -> Iterator[tuple[tuple[str, int], Seen]]:
    counts: dict[str, int] = {}
    for call in calls:
        number = counts[call.name] = counts.get(call.name, -1) + 1
        yield (call.name, number), call


def listen(undoing: Undoing, model: nn.Module, trace: Trace, *, live: bool = False) -> None:
    """Has every call of a module noted in `trace`, until the undoing; with `live`
    where they hang in the graph instead of copies."""
    names: dict[int, str] = {}
    for name, module in walk(model):
        names.setdefault(id(module), name)

    def enter(module: nn.Module, args: Any, kwargs: Any) -> None:
        caller = trace.under_way[-1] if trace.under_way else None
        came = list(leaves((args, kwargs), torch.Tensor))
        seen = Seen(names[id(module)], caller, [] if live else _copies(came), came=_links(came) if live else [])
        trace.under_way.append(seen)

    def leave(module: nn.Module, args: Any, kwargs: Any, output: Any) -> None:
        name = names[id(module)]
        while trace.under_way and trace.under_way[-1].name != name:
            trace.under_way.pop()  # it raised, and its caller went on
        if not trace.under_way:
            return
        seen = trace.under_way.pop()
        came = list(leaves(output, torch.Tensor))
        if live:
            seen.went, seen.grad_enabled = _links(came), torch.is_grad_enabled()
        else:
            seen.outputs = _copies(came)
        trace.calls.append(seen)

    # Who guards the model puts its hooks back as well, if an interrupt comes before these are noted.
    for module in {id(module): module for _, module in walk(model)}.values():
        with suppress(RuntimeError, AttributeError):  # parts of TorchScript take no hooks
            undoing.noted(module.register_forward_pre_hook(enter, with_kwargs=True).remove)
            undoing.noted(module.register_forward_hook(leave, with_kwargs=True).remove)


def _copies(tensors: Tensors) -> Tensors:
    return [tensor.detach().clone() for tensor in tensors]


def _links(tensors: Tensors) -> list[Link]:
    return [Link(one.grad_fn, id(one), one.is_floating_point() or one.is_complex(), one) for one in tensors]


Broken = Callable[[Seen, Seen, str], bool]
"""Whether the "inputs" or "outputs" of a call, in two forwards, lack the property."""


@dataclass(frozen=True)
class Place:
    """Where a property fails first: a module, and the part that it calls next, if its own code is to blame."""

    site: str
    before: str = ""

    def told(self) -> str:
        """In words, for the end of a sentence."""
        return f" It comes from its own code, before {self.before!r} is called." if self.before else ""


def first_break(one: Trace, other: Trace, broken: Broken) -> Place:
    """The module at which a property fails first; the model itself where it is between its parts.

    A call whose output lacks it though what came in has it is the place. Where what came in lacks it already, it
    was lost in the code of a caller: the innermost one that got it whole.
    """
    there = {id(a): b for a, b in one.pairs(other)}
    for call, twin in one.pairs(other):
        if not broken(call, twin, "outputs"):
            continue
        if not broken(call, twin, "inputs"):
            return Place(call.name)
        caller, before = call.caller, call.name
        while caller is not None and id(caller) in there and broken(caller, there[id(caller)], "inputs"):
            before, caller = caller.name, caller.caller
        return Place(caller.name if caller is not None else "", before)
    return Place("")
