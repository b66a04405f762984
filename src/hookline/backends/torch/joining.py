"""Joining: the gradients of one module call, brought together so that they can be replaced.

A hook that may return other gradients has to get them all at once, before any of them goes on. Here
the module's inputs are replaced by aliases (views) that only this module sees, and the hooks sit on
the aliases. A module that writes to its input in place makes autograd drop the alias; the input
itself is listened to as well, and from the second call on only the input.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import torch

from hookline.backends.protocol import GradSink, JointSink
from hookline.backends.torch.compat import graph_task, listen, version
from hookline.backends.torch.leaves import Ear, aliased, differentiable
from hookline.trees import map_leaves

Tensor = torch.Tensor


class Habits:
    """What earlier calls of a site taught: whether the module writes to its inputs."""

    __slots__ = ("known", "writes")

    def __init__(self) -> None:
        self.known = False
        self.writes = False


class JoinedInputs:
    """One call's arguments, with a sink that gets the gradients of all of them at once.

    Of a module that has several differentiable inputs and writes to one of them in place, that
    one's gradient is not among them: autograd knows it only after the others have gone on.
    """

    __slots__ = ("aliases", "habits", "live", "sink")

    def __init__(self, habits: Habits, sink: JointSink) -> None:
        self.habits = habits
        self.sink = sink
        self.live = 0
        self.aliases: dict[int, tuple[Tensor, Tensor, int, Ear]] = {}

    def enter(self, args: Any, kwargs: Any) -> tuple[Any, Any]:
        """The arguments to call the module with."""
        found, places = differentiable((args, kwargs))
        self.live = len(found)
        if not found:
            return args, kwargs
        meeting = Meeting(self.sink, places, len(found))
        inner = meeting.inner(found)
        new = {id(leaf): self._heard(leaf, inner[id(leaf)], numbers, meeting) for leaf, numbers in found}
        swapped = map_leaves(lambda leaf: new.get(id(leaf), leaf), (args, kwargs), Tensor)
        return swapped[0], swapped[1]

    def _heard(self, leaf: Tensor, inner: Tensor, numbers: list[int], meeting: Meeting) -> Tensor:
        ear = Ear(numbers, meeting.collect)
        alias = leaf if self.habits.writes and self.live == 1 else aliased(inner)
        listen(alias, ear.alias)
        if alias is leaf:
            return leaf
        if not self.habits.known and self.live == 1:
            listen(leaf, ear.original)
        self.aliases[id(alias)] = leaf, alias, version(alias), ear
        return alias

    def leave(self, output: Any, on_output: GradSink) -> Any:
        """The output to go on with; `on_output` hears its gradients before the sink is called."""
        aliases, self.aliases = self.aliases, {}
        for _, alias, before, ear in aliases.values():
            if version(alias) != before:
                ear.written = self.habits.writes = True
        self.habits.known = True
        identities: dict[int, tuple[Tensor, Ear]] = {}

        def own(found: Tensor) -> Tensor:
            if (entry := aliases.get(id(found))) is None:
                return found
            leaf, alias, _, ear = entry
            if ear.written:
                return leaf  # as without hookline: the module returns the very tensor it was given
            # The module returned its input: one more alias tells the output's gradient from the input's.
            out = aliased(alias)
            identities[id(out)] = leaf, ear
            return out

        output = map_leaves(own, output, Tensor) if aliases else output
        for out, numbers in differentiable(output)[0]:
            output_ear = Ear(numbers, on_output)
            listen(out, output_ear.alias)
            if id(out) in identities and self.live == 1:
                leaf, ear = identities[id(out)]
                for each in (output_ear, ear):
                    each.watch(out)
                ear.before = output_ear
                listen(leaf, ear.original)
        return output


def joined(output: Any, sink: JointSink) -> Any:
    """`output` to go on with; `sink` gets the gradients of all its places at once."""
    found, places = differentiable(output)
    meeting = Meeting(sink, places, len(found))
    if len(found) == 1:
        ((leaf, numbers),) = found
        listen(leaf, partial(meeting.collect, numbers))
    if len(found) < 2:
        return output
    outer = {key: aliased(inner) for key, inner in meeting.inner(found).items()}
    for leaf, numbers in found:
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
    ear = Ear(numbers, Meeting(sink, places, 1).collect)
    alias = aliased(leaf)
    ear.watch(alias)
    alias.register_hook(ear.alias)  # type: ignore[no-untyped-call]
    if alias is not leaf:
        leaf.register_hook(ear.original)  # type: ignore[no-untyped-call]
    return tuple(alias if tensor is leaf else tensor for tensor in tensors)


class Meeting:
    """Brings the gradients of several leaves together before any of them goes on.

    Each leaf has two aliases in a row. Autograd runs nodes from the youngest to the oldest, so all
    outer aliases, where gradients are collected, come before the first inner one, where the function
    is called and its results are handed on. With a single leaf no second alias is needed.
    """

    __slots__ = ("fn", "grads", "live", "places", "results", "task")

    def __init__(self, fn: JointSink, places: int, live: int) -> None:
        self.fn = fn
        self.places = places
        self.live = live
        self.grads: list[Any] = []
        self.results: list[Any] | None = None
        self.task = -1

    def inner(self, found: list[tuple[Tensor, list[int]]]) -> dict[int, Tensor]:
        """The inner alias of each leaf, by the leaf's id; the leaf itself if there is only one."""
        if len(found) < 2:
            return {id(leaf): leaf for leaf, _ in found}
        made = {}
        for leaf, numbers in found:
            made[id(leaf)] = alias = aliased(leaf)
            listen(alias, partial(self.deliver, numbers))
        return made

    def collect(self, numbers: list[int], grad: Tensor) -> Any:
        """Notes a gradient; with a single differentiable leaf, calls the function at once."""
        if self.task != graph_task() or self.results is not None:
            self.task, self.results = graph_task(), None
            self.grads = [None] * self.places
        for number in numbers:
            self.grads[number] = grad
        return self._called()[numbers[0]] if self.live == 1 else None

    def deliver(self, numbers: list[int], grad: Tensor) -> Any:
        """The gradient to go on with; the first to ask has the function called."""
        return (self.results or self._called())[numbers[0]]

    def _called(self) -> list[Any]:
        new = self.fn(self.grads)
        self.results = self.grads if new is None else new
        return self.results
