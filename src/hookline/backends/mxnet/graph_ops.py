"""Graphs: what a compiled graph tells of the names of values, operators and the blocks that they belong to."""

from __future__ import annotations

from collections import Counter
from typing import Any, NamedTuple

from hookline.backends.mxnet import modules
from hookline.backends.nouns import Module
from hookline.backends.operators import FORWARD


class Value(NamedTuple):
    """An array that goes into an operator or comes out of it, under MXNet's name for it."""

    name: str
    array: Any


class Graph:
    """The graph of a hybridized block; `symbol` is what it was read from.

    A value is called by its node and what it is there, `dense0_fwd_output`; a node by the prefix of the block
    that made it and a name of its own, `dense0_` and `fwd`.
    """

    def __init__(self, symbol: Any, described: dict[str, Any], block: Module) -> None:
        self.symbol = symbol
        nodes = [node for node in described["nodes"] if node["op"] != "null"]
        self._inputs = {node["name"]: len(node["inputs"]) for node in nodes}
        self._times = Counter(node["name"] for node in nodes)
        self._home = block
        self._owners = sorted(
            ((part.prefix, part) for part in (block, *modules.below(block)) if part.prefix),
            key=lambda found: -len(found[0]),
        )
        self._nodes: dict[str, str] = {}

    def node(self, value: str) -> str:
        """The node of a value; that of a gradient is the node of the forward, if there is one."""
        node = self._nodes.get(value)
        if node is None:
            cuts = [place for place, letter in enumerate(value) if letter == "_"]
            found = (value[:place] for place in reversed(cuts) if value[:place] in self._inputs)
            node = self._nodes[value] = next(found, value.rpartition("_")[0])
        return node

    def inputs_of(self, node: str) -> int:
        """How many arrays a node of the forward takes."""
        return self._inputs.get(node, 0)

    def owner(self, node: str) -> Any:
        """The block whose forward made this node; that of the graph for nodes that only a backward has."""
        return next((part for prefix, part in self._owners if node.startswith(prefix)), self._home)

    def call(self, node: str, nth: int, phase: str) -> int:
        """Of the nth run of a node: which call of its block it belongs to. A backward goes the other way round."""
        times = max(self._times[node], 1)
        return nth % times if phase == FORWARD else times - 1 - nth % times
