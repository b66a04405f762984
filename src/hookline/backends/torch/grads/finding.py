"""Finding: the passages that a backward has to look up, by the nodes of its graph."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from hookline.backends.torch.grads.leaves import Edge, Region
from hookline.backends.torch.grads.marks import replacing
from hookline.backends.torch.grads.passages import Passage
from hookline.backends.torch.grads.ports import Port, ports_at
from hookline.backends.torch.grads.simple import replacing_at, simple_at

Found = tuple[Passage, Port, Edge, Region | None]
"""A port of an output, and the edge at which it was found: its own, or that of the base that it is a region of."""


def looked_up_at(node: Any, *, simple: bool) -> list[Found]:
    """The outputs of passages that are not simple, or of all, at a node; the first first."""
    marks = [mark for mark in ports_at(node.metadata) if simple or not mark[1].simple]
    found: list[Found] = [(passage, port, (node, number), region) for number, passage, port, region in marks]
    if simple:
        known = [passage for passage, *_ in found]
        found += [_of_simple(node, passage) for passage in simple_at(node) if passage not in known]
    return found


def replaced_simply_at(nodes: Iterable[Any]) -> list[Found]:
    """The outputs of simple passages that replace what comes to one of these nodes."""
    if replacing.alive() is None:
        return []
    return [_of_simple(node, passage) for node in nodes for passage in replacing_at(node)]


def _of_simple(node: Any, passage: Passage) -> Found:
    """The output of a simple passage, which gets ports now."""
    passage.lay_out()
    return passage, passage.outputs[0], (node, passage.output_nr), None
