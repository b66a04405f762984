"""Joining: gradients brought together, so that a hook gets all of them and may replace them.

Autograd runs nodes from the youngest to the oldest. Whatever a module sends to its inputs is sent
before the first of the inputs' own nodes runs: there the hook is called and its results go on. For
outputs there is no such place, so several outputs are led through views.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch

from hookline.backends.protocol import GradSink, JointSink
from hookline.backends.torch.compat import graph_task, is_view, listen
from hookline.backends.torch.leaves import Ear, aliased, differentiable
from hookline.backends.torch.listening import Edge, Edges, Found, Listener, Memory, totals
from hookline.trees import map_leaves

Tensor = torch.Tensor


class JoinedInputs(Listener):
    """One call's passage; `sink` gets the gradients of all inputs at once and may return others.

    `live` is the number of inputs that have a gradient. Gradients of the outputs are told to
    `on_output` before.
    """

    live = places = 0

    def __init__(self, sink: JointSink, on_output: GradSink, memory: Memory = None) -> None:
        self.sink = sink
        self.on_output = on_output
        self.memory = memory

    def enter(self, args: Any, kwargs: Any) -> tuple[Any, Any]:
        whole = args[0] if len(args) == 1 and not kwargs else (args, kwargs)
        found, self.places = differentiable(whole)
        self.live = len(found)
        if self.live > 1 and any(leaf.grad_fn is None for leaf, _ in found):
            # A leaf's node runs as soon as it can, not in order of age: a view's node waits its turn.
            views = {id(leaf): aliased(leaf) for leaf, _ in found if leaf.grad_fn is None}
            args, kwargs = map_leaves(lambda leaf: views.get(id(leaf), leaf), (args, kwargs), Tensor)
            found, _ = differentiable((args, kwargs))
        if found:
            self.aim(found)
        return args, kwargs

    def hear_call(self, found: Found, senders: dict[Any, Edges], targets: dict[Edge, list[int]]) -> None:
        if self.live == 1 and len(senders) == 1:
            ((node, edges),) = senders.items()
            told = None
            leaf, numbers = found[0]
            if len(found) == 1 and senders.get(leaf.grad_fn) is edges and not is_view(leaf):
                told = partial(_told, self.on_output, numbers, leaf.output_nr)
            else:
                for leaf, numbers in found:
                    self.hear_output(leaf, numbers)
            node.register_hook(partial(_replaced, self.sink, self.places, edges, told))
            return
        for leaf, numbers in found:
            self.hear_output(leaf, numbers)
        meeting = Meeting(self.sink, self.places)
        for node, edges in senders.items():
            node.register_hook(partial(meeting.add, edges))
        for (node, output_nr), numbers in targets.items():
            node.register_prehook(partial(meeting.deliver_in_tuple, numbers, output_nr))

    def identity_sink(self, inputs: list[int]) -> GradSink:
        return partial(_identity, self.sink, self.places, inputs, self.on_output)


def joined(output: Any, sink: JointSink) -> Any:
    """`output` to go on with; `sink` gets the gradients of all its places at once.

    Several outputs get two views in a row: at the outer ones gradients are collected, and all of
    these run before the first inner one, where the function is called and its results go on.
    """
    found, places = differentiable(output)
    if len(found) == 1:
        ((leaf, numbers),) = found
        listen(leaf, partial(_called, sink, places, numbers))
    if len(found) < 2:
        return output
    meeting = Meeting(sink, places)
    inner = {id(leaf): aliased(leaf) for leaf, _ in found}
    outer = {key: aliased(alias) for key, alias in inner.items()}
    for leaf, numbers in found:
        listen(inner[id(leaf)], partial(meeting.deliver, numbers))
        listen(outer[id(leaf)], partial(meeting.collect, numbers))
    return map_leaves(lambda leaf: outer.get(id(leaf), leaf), output, Tensor)


def tapped(tensors: tuple[Tensor, ...], sink: JointSink) -> tuple[Tensor, ...]:
    """The tensors to go on with; `sink` gets the gradients that come back to this very point.

    Other uses of the same tensors, before this point, don't count; a later in-place change is fine.
    """
    found, places = differentiable(tensors)
    if len(found) != 1:
        swapped: tuple[Tensor, ...] = joined(tensors, sink)
        return swapped
    ((leaf, numbers),) = found
    ear = Ear(numbers, partial(_called, sink, places))
    alias = aliased(leaf)
    ear.watch(alias)
    alias.register_hook(ear.alias)  # type: ignore[no-untyped-call]
    if alias is not leaf:
        leaf.register_hook(ear.original)  # type: ignore[no-untyped-call]
    return tuple(alias if tensor is leaf else tensor for tensor in tensors)


def _called(sink: JointSink, places: int, numbers: list[int], grad: Tensor) -> Any:
    """What `sink` makes of the only gradient there is."""
    grads: list[Any] = [None] * places
    for number in numbers:
        grads[number] = grad
    new = sink(grads)
    return None if new is None else new[numbers[0]]


def _told(on_output: GradSink, numbers: list[int], output_nr: int, grad_outputs: Any) -> None:
    if (grad := grad_outputs[output_nr]) is not None:
        on_output(numbers, grad)


def _replaced(
    sink: JointSink,
    places: int,
    edges: Edges,
    told: Callable[[Any], None] | None,
    grads: Any,
    grad_outputs: Any,
) -> Any:
    """Of a node that alone feeds the only input: its gradients, with the sink's in their place."""
    if told is not None:
        told(grad_outputs)
    if len(edges) == 1:
        index, numbers = edges[0]
        grad = grads[index]
    else:
        numbers, grad = next(iter(totals(edges, grads).values()), ([], None))
    if grad is None:
        return None
    new = _called(sink, places, numbers, grad)
    if new is None or new is grad:
        return None
    result = list(grads)
    for index, _ in edges:
        result[index] = None
    result[edges[0][0]] = new
    return tuple(result)


def _identity(
    sink: JointSink, places: int, inputs: list[int], on_output: GradSink, outputs: list[int], grad: Tensor
) -> Any:
    on_output(outputs, grad)
    return _called(sink, places, inputs, grad)


class Meeting:
    """Brings the gradients of several tensors together before any of them goes on."""

    __slots__ = ("fn", "grads", "places", "results", "task")

    def __init__(self, fn: JointSink, places: int) -> None:
        self.fn = fn
        self.places = places
        self.grads: list[Any] = [None] * places
        self.results: list[Any] | None = None
        self.task = -1

    def collect(self, numbers: list[int], grad: Tensor) -> None:
        """Notes a gradient, or a further part of it."""
        if self.task != graph_task() or self.results is not None:
            self.task, self.results = graph_task(), None
            self.grads = [None] * self.places
        before = self.grads[numbers[0]]
        for number in numbers:
            self.grads[number] = grad if before is None else before + grad

    def add(self, edges: Edges, grads: Any, _: Any) -> None:
        """Notes what a sender sends."""
        for numbers, grad in totals(edges, grads).values():
            self.collect(numbers, grad)

    def deliver(self, numbers: list[int], grad: Tensor) -> Any:
        """The gradient to go on with; the first to ask has the function called."""
        own = self.grads[numbers[0]]
        if own is None or self.task != graph_task():
            return None  # nothing of this tensor's gradient is from here
        if self.results is None:
            new = self.fn(self.grads)
            self.results = self.grads if new is None else new
        result = self.results[numbers[0]]
        if result is own:
            return None
        # The tensor may have other uses, whose share stays as it is.
        return result if torch.equal(grad, own) else grad + (result - own)

    def deliver_in_tuple(self, numbers: list[int], output_nr: int, grads: Any) -> Any:
        """`deliver` as a node's prehook."""
        new = None if grads[output_nr] is None else self.deliver(numbers, grads[output_nr])
        return None if new is None else (*grads[:output_nr], new, *grads[output_nr + 1 :])
