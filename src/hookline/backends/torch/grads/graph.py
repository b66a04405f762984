"""Graph: the nodes of autograd's graph that one backward may run, walked once when it begins."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from hookline.backends.torch.compat import node_number
from hookline.backends.torch.grads.leaves import Edge, edge_of_root

Layout = tuple[tuple[int, ...], tuple[int, ...], int]
"""Size, stride and offset of a view in its memory."""
Looked = dict[int, Layout]
"""Views that were looked at after something was written into one of them, by the numbers of their nodes."""


class Graph:
    """What `roots` depend on; `nodes` are (node, its number, its edges), without those of leaves."""

    def __init__(self, roots: Iterable[Any]) -> None:
        self.nodes: list[tuple[Any, int, Any]] = []
        self._by_number: dict[int, Any] = {}
        self._written: dict[Any, Looked] | None = None
        seen = {edge[0] for edge in map(edge_of_root, roots) if edge is not None}
        stack = list(seen)
        while stack:
            node = stack.pop()
            edges = node.next_functions
            if not edges:  # it accumulates a leaf's gradient
                continue
            self.nodes.append((node, node_number(node), edges))
            for child, _ in edges:
                if child is not None and child not in seen:
                    seen.add(child)
                    stack.append(child)

    def known(self, edge: Edge | None) -> Edge | None:
        """An edge that may be known by its node's number alone; None where it is not of this graph."""
        if edge is None or not isinstance(edge[0], int):
            return edge
        if not self._by_number:
            self._by_number = {number: node for node, number, _ in self.nodes}
        node = self._by_number.get(edge[0])
        return None if node is None else (node, edge[1])

    def looked(self, node: Any) -> Looked:
        """Of a node that writes into a view: the views that were looked at afterwards.

        What was written without autograd leaves no node but that of the view.
        """
        if self._written is None:
            self._written = {}
            for one, number, edges in self.nodes:
                if one.name() != "AsStridedBackward0":  # what autograd makes of a view once its base is written to
                    continue
                layout = one._saved_size, one._saved_stride, one._saved_storage_offset or 0
                self._written[one] = {number: layout}
                below = edges[0][0]
                while below is not None and below.name().endswith("CopySlices"):
                    self._written.setdefault(below, {})[number] = layout
                    below = below.next_functions[0][0]
        return self._written.get(node, {})
