"""Leaves: the differentiable tensors of a structure, where each of them stands, and who else has them."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import nn
from torch.autograd.graph import get_gradient_edge

from hookline.backends.torch.compat import base_of, is_view, version
from hookline.trees import leaves, parts

Tensor = torch.Tensor
Edge = tuple[Any, int]
"""A node of autograd's graph and the number of one of its outputs: where gradients of a tensor are sent."""
Live = list[tuple[Tensor, int]]
"""Tensors that need a gradient, with the numbers of their places."""


def live_leaves(tree: Any) -> tuple[Live, int]:
    """The tensors of `tree` that need a gradient, with the numbers of their places; how many places there are.

    >>> x, y = torch.ones(1, requires_grad=True), torch.ones(1)
    >>> live, places = live_leaves((x, y, {"again": x}))
    >>> [number for _, number in live], places
    ([0, 2], 3)
    """
    # Without autograd, a tensor that passes through is of no graph that this call makes.
    enabled = torch.is_grad_enabled()
    if type(tree) is Tensor:
        return ([(tree, 0)] if enabled and tree.requires_grad else []), 1
    live: Live = []
    places = 0
    for leaf in leaves(tree, Tensor):
        if enabled and leaf.requires_grad:
            live.append((leaf, places))
        places += 1
    return live, places


def edge_of(leaf: Tensor) -> Edge:
    """The place in the graph to which the gradient of `leaf` is sent."""
    node = leaf.grad_fn
    if node is not None:
        return node, leaf.output_nr
    edge = get_gradient_edge(leaf)
    return edge.node, edge.output_nr


def aliased(leaf: Tensor) -> Tensor:
    """A view of all of `leaf`; `leaf` itself where its layout has no such view."""
    if leaf.layout is not torch.strided or leaf.is_nested:
        return leaf
    alias = leaf.view_as(leaf)
    if vars(leaf):  # attributes that somebody hung on the tensor
        vars(alias).update(vars(leaf))
    return alias


class Region(NamedTuple):
    """Which part of its base a view shows.

    A view that is written to in place goes out of the graph. The gradient of what it was before arrives as
    this part of the gradient that the writing sends to the base.
    """

    base_size: tuple[int, ...]
    base_stride: tuple[int, ...]
    size: tuple[int, ...]
    stride: tuple[int, ...]
    offset: int

    def of(self, grad: Tensor) -> Tensor:
        """The part of a gradient of the base."""
        laid = torch.empty_strided(self.base_size, self.base_stride, dtype=grad.dtype, device=grad.device)
        return laid.copy_(grad).as_strided(self.size, self.stride, self.offset)

    def put(self, grad: Tensor, new: Tensor) -> Tensor:
        """A gradient of the base with another part."""
        laid = torch.empty_strided(self.base_size, self.base_stride, dtype=grad.dtype, device=grad.device)
        laid.copy_(grad).as_strided(self.size, self.stride, self.offset).copy_(new)
        return laid


def region_of(leaf: Tensor) -> tuple[Edge, Region] | None:
    """Of a view that may be written to: its base's place in the graph, and the part it shows."""
    if not is_view(leaf):
        return None
    base = base_of(leaf)
    if base is None or base.grad_fn is None or base.dtype != leaf.dtype or base.layout is not torch.strided:
        return None  # a leaf's views can't be written to
    offset = int(leaf.storage_offset() - base.storage_offset())
    return edge_of(base), Region(base.size(), base.stride(), leaf.size(), leaf.stride(), offset)


class Kept:
    """Finds tensors of an output that somebody else has as well: in an attribute, a list, a caller's variable.

    What is done with these is no use of the output. Somebody else is known by references that the structure
    does not explain; a reference too many only costs a view.
    """

    def __init__(self) -> None:
        # What is counted where nobody else has a thing; measured, since it depends on Python and torch.
        self._in_a_hook: int | None = None
        self._in_a_branch = 0

    def ids(self, output: Any, references: int) -> set[int]:
        """The ids of such tensors; `references` is what a hook counts of its argument `output`."""
        if self._in_a_hook is None:
            self._in_a_branch = _unexplained((torch.empty(0),))[1][1]
            self._in_a_hook = _references_in_a_hook()
        whole = references > self._in_a_hook
        if type(output) is Tensor:
            return {id(output)} if whole else set()
        found = _unexplained(output)
        spare = {key for key, count in found[1:] if count > self._in_a_branch}
        if whole:
            spare.add(id(output))
        return _tensors_below(output, spare, False) if spare else spare


kept = Kept()


def _unexplained(tree: Any) -> list[tuple[int, int]]:
    """For each branch and tensor of a structure its id, and how many of its references are not the structure's."""
    found: list[Any] = []
    explained: dict[int, int] = {}
    _explain(tree, found, explained)
    return [(id(one), sys.getrefcount(one) - explained[id(one)]) for one in found]


def _explain(tree: Any, found: list[Any], explained: dict[int, int]) -> None:
    """Lists the branches and tensors of a structure, and how many references of the structure each has."""
    if id(tree) not in explained:
        explained[id(tree)] = 0
        found.append(tree)
    explained[id(tree)] += 1
    if explained[id(tree)] > 1 or isinstance(tree, Tensor) or (branch := parts(tree)) is None:
        return
    for child in branch[1]:
        if isinstance(child, Tensor) or parts(child) is not None:
            _explain(child, found, explained)
    if not isinstance(tree, (tuple, list, dict)) or not hasattr(tree, "__dict__"):
        return
    for value in vars(tree).values():  # the outputs of transformers hold each value twice
        if id(value) in explained:
            explained[id(value)] += 1


def _tensors_below(tree: Any, spare: set[int], inside: bool) -> set[int]:
    inside = inside or id(tree) in spare
    if isinstance(tree, Tensor):
        return {id(tree)} if inside else set()
    branch = parts(tree)
    found: set[int] = set()
    for child in branch[1] if branch is not None else ():
        found |= _tensors_below(child, spare, inside)
    return found


def _references_in_a_hook() -> int:
    """How many references a forward hook counts of an output that nobody else has."""
    counts: list[int] = []

    class Count:
        def __call__(self, module: Any, args: Any, output: Any) -> None:
            counts.append(sys.getrefcount(output))

    class Fresh(nn.Module):
        def forward(self) -> Tensor:
            return torch.empty(0)

    module = Fresh()
    module.register_forward_hook(Count())
    module()
    return counts[0]


def written(leaf: Tensor, before: int) -> bool:
    """Whether `leaf` was written to since its version was `before`."""
    return version(leaf) != before


def replaced_at(tree: Any, new: dict[int, Tensor], rebuildable: Callable[[Any], bool]) -> Any:
    """`tree` with other tensors at the places of these numbers; branches that can't be rebuilt stay."""
    count = -1

    def walk(node: Any) -> Any:
        nonlocal count
        if isinstance(node, Tensor):
            count += 1
            return new.get(count, node)
        branch = parts(node)
        if branch is None:
            return node
        fresh = [walk(child) for child in branch[1]]
        if not rebuildable(node) or all(a is b for a, b in zip(fresh, branch[1], strict=True)):
            return node
        return branch[2](fresh)

    return walk(tree)
