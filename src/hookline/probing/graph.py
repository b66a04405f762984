"""Graph: which parameters a tensor depends on, as autograd has noted it."""

from __future__ import annotations

from typing import Any

from torch import nn

from hookline.probing.tracing import Link


class Graph:
    """The graph of a forward: which parameters a tensor depends on, as bits of a number."""

    def __init__(self, parameters: dict[str, nn.Parameter]) -> None:
        self._bits = {name: 1 << at for at, name in enumerate(parameters)}
        self._leaves = {id(one): self._bits[name] for name, one in parameters.items()}
        self._known: dict[Any, int] = {}

    def reaches(self, link: Link, name: str) -> bool:
        """Whether a tensor depends on this parameter."""
        return bool(self._under(link) & self._bits[name])

    def is_in_it(self, link: Link) -> bool:
        """Whether a tensor is in the graph at all."""
        return link.node is not None or link.leaf in self._leaves

    def _under(self, link: Link) -> int:
        if link.node is None:
            return self._leaves.get(link.leaf, 0)
        left = [link.node]
        while left:
            node = left[-1]
            below = [one for one, _ in node.next_functions if one is not None]
            missing = [one for one in below if one not in self._known] if node not in self._known else []
            if missing:
                left += missing
                continue
            left.pop()
            if node not in self._known:
                bits = self._leaves.get(id(getattr(node, "variable", None)), 0)
                for one in below:
                    bits |= self._known[one]
                self._known[node] = bits
        return self._known[link.node]
