"""Ports: where the gradients of one tensor that enters or leaves a call are found in autograd's graph."""

from __future__ import annotations

import weakref
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
from torch.utils.weak import WeakIdKeyDictionary

from hookline.backends.torch.compat import is_view, node_number
from hookline.backends.torch.grads.leaves import Edge, Region
from hookline.backends.torch.grads.threads import here

if TYPE_CHECKING:
    from hookline.backends.torch.grads.passages import Passage

Tensor = torch.Tensor

ONLY = (0,)
"""The number of the place where a single tensor stands."""

FOREVER = 2**63
"""A number above that of any node: spans of outputs have no end."""

KEY = "hookline"
"""Under this name a node's metadata has the ports whose edge is one of its outputs, the last of them first."""

SHARED = (
    "one tensor came in at several places; they were told apart by views, so code that compares its arguments "
    "by `is`, as nn.MultiheadAttention does, may take another way, which can differ in the last digits; so can "
    "gradients of gradients, which are summed along these views"
)
AGAIN = (
    "one tensor left at several places; where one of them is written to in place later, what comes back to it may "
    "be told at another"
)
WRITTEN = (
    "one tensor came in at several places and was written to in place; what comes back to it may be told at "
    "another of these places"
)
ELSEWHERE = (
    "somebody else has what left it, and all or a part of that was written to in place later; what comes back to "
    "it is told here, even if it was written to where the other has it"
)
THREADS = (
    "calls came from several threads, so tensors that came in or left were told apart by views; code that "
    "compares them by `is` may take another way"
)
UNTOLD = "one tensor that has no views came in at several places; their gradients could not be told apart"


class Port:
    """The gradient of one tensor that enters or leaves a call: what an edge gets from nodes of a span."""

    __slots__ = (
        "base",
        "edge",
        "handed_on",
        "high",
        "low",
        "numbers",
        "outward",
        "own",
        "region",
        "seen_last",
        "through",
    )

    def __init__(self, numbers: tuple[int, ...], *, outward: bool) -> None:
        self.numbers, self.outward = numbers, outward
        self.low = self.high = 0
        self.handed_on = False
        """Of an output: whether somebody else has the same tensor."""
        self.own = False
        """Whether nobody else sends to its edge, whatever the numbers of nodes are."""
        # Of an input: edges, whose nodes are older than the call. Those of an output are known by the node that
        # holds this port: a reference to it from here would close a cycle through C++.
        self.edge: Edge | None = None
        self.base: Edge | None = None
        self.region: Region | None = None
        # Of an input: the parts that outputs show which are views of it, or of its base.
        self.through: list[Region] | tuple[()] = ()
        self.seen_last: Callable[[int], int] | None = None
        """Of a view: `number_of` it."""


STALE = -1

_goes_on_as: WeakIdKeyDictionary = WeakIdKeyDictionary()
"""Views, and the views that hookline put in their place where they entered or left calls: without it, these are
the same. Of a view that goes through many calls the latest."""
LATEST = 16


def goes_on_as(leaf: Tensor, view: Tensor) -> None:
    """Notes that what is done to `view` is done to `leaf`; matters where `leaf` is a view too.

    Not of a leaf of the graph, into which nobody may write: its node holds it, and the view holds that node.
    """
    if is_view(leaf) and not leaf.is_leaf:
        _goes_on_as.setdefault(leaf, deque(maxlen=LATEST)).append(view)  # type: ignore[no-untyped-call]


def number_of(leaf: Tensor, now: int) -> int:
    """The number of a view's node: another one once it is written to, or looked at after its base was.

    STALE if nobody had looked at it since then before node `now`.
    """
    numbers, waiting = [], [leaf]
    while waiting:
        found = waiting.pop()
        numbers.append(0 if (node := found.grad_fn) is None else node_number(node))
        waiting += _goes_on_as.get(found, ())  # type: ignore[no-untyped-call]
    return max((number for number in numbers if number < now), default=0) or (STALE if max(numbers) >= now else 0)


def number_of_held(held: weakref.ref[Tensor], now: int) -> int:
    """The same of a view that may be gone: 0 if it is."""
    return 0 if (leaf := held()) is None else number_of(leaf, now)


def mark(node: Any, output_nr: int, passage: Passage, port: Port, region: Region | None = None) -> None:
    """Notes at the node which made a tensor that this is the tensor of a port, or the base that the port is in."""
    metadata, thread = node.metadata, here.now
    metadata[KEY] = output_nr, passage, port, region, metadata.get(KEY)
    thread.marked = max(thread.marked, node_number(node))


def ports_at(metadata: dict[str, Any]) -> list[tuple[int, Passage, Port, Region | None]]:
    """What was noted at a node, the first first."""
    found = []
    mark = metadata.get(KEY)
    while mark is not None:
        *noted, mark = mark
        found.append(tuple(noted))
    return found[::-1]


def is_looked_up(node: Any, but: Any) -> bool:
    """Whether a backward has to look up somebody else's port at this node."""
    return any(not other.simple for _, other, *_ in ports_at(node.metadata) if other is not but)
