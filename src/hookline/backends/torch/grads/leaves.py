"""Leaves: the differentiable tensors of a structure, where each of them stands, and who else has them."""

from __future__ import annotations

import sys
from collections.abc import MutableMapping
from contextlib import nullcontext
from itertools import count
from typing import Any, NamedTuple

import torch
from torch import nn
from torch.autograd.graph import get_gradient_edge

from hookline.backends.torch.compat import (
    are_followed,
    aside,
    base_of,
    is_seen,
    is_view,
    is_wrapped,
    node_number,
    version,
)
from hookline.backends.torch.unseen import unseen
from hookline.trees import leaves, map_leaves, parts

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
    # Without autograd, a tensor that passes through is of no graph that this call makes. What is being traced into
    # a program of its own gets no view and no hook of ours.
    enabled = are_followed()
    if type(tree) is Tensor:  # as most are
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
    with unseen():  # torch makes a view to find it
        edge = get_gradient_edge(leaf)
    return edge.node, edge.output_nr


def by_number(edge: Edge | None) -> Edge | None:
    """An edge by the number of its node; of a leaf, which has none, the edge itself."""
    if edge is None or isinstance(edge[0], int) or not edge[0].next_functions:
        return edge
    return node_number(edge[0]), edge[1]


def edge_of_root(root: Any) -> Edge | None:
    """The edge of a tensor, or of what `torch.autograd.graph.get_gradient_edge` gives; None without history."""
    if isinstance(root, Tensor):
        if not root.requires_grad or (root.grad_fn is None and is_wrapped(root)):
            return None  # a leaf of another level of torch.func has no node here
        return edge_of(root)
    return root.node, root.output_nr


def has_view(leaf: Tensor) -> bool:
    """Whether the layout of `leaf` has a view of all of it."""
    return leaf.layout is torch.strided and not leaf.is_nested


def aliased(leaf: Tensor) -> Tensor:
    """A view of all of `leaf`; `leaf` itself where its layout has no such view."""
    if not has_view(leaf):
        return leaf
    with aside(type(leaf), transforms=False) if is_seen(leaf) else nullcontext():
        alias: Tensor
        if leaf.grad_fn is None and not is_wrapped(leaf):
            alias = _Same.apply(leaf)  # type: ignore[no-untyped-call]
        else:
            alias = torch.ops.aten.alias.default(leaf)  # not view_as: its backward runs an operator
    if vars(leaf):  # attributes that somebody hung on the tensor
        vars(alias).update(vars(leaf))
    return alias


class _Same(torch.autograd.Function):
    """A leaf by another node, in the same memory, but no view to autograd.

    Autograd gives a view a new node once its base was written to without autograd: that of a leaf is where no port
    can be, and if the leaf is itself a view, of something without gradient, its gradient would be lost.
    """

    @staticmethod
    def forward(ctx: Any, leaf: Tensor) -> Tensor:
        return leaf.detach()

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Tensor:
        return grads[0]


class Region(NamedTuple):
    """Which part of its base a view shows.

    A view that is written to in place goes out of the graph. The gradient of what it was before arrives as
    this part of the gradient that the writing sends to the base.
    """

    base_size: tuple[int, ...]
    base_stride: tuple[int, ...]
    base_offset: int
    size: tuple[int, ...]
    stride: tuple[int, ...]
    offset: int

    def of(self, grad: Tensor) -> Tensor:
        """The part of a gradient of the base."""
        laid = torch.empty_strided(self.base_size, self.base_stride, dtype=grad.dtype, device=grad.device)
        return laid.copy_(grad).as_strided(self.size, self.stride, self.offset)

    def shows(self, size: tuple[int, ...], stride: tuple[int, ...], offset: int) -> bool:
        """Whether a view of that layout in the same memory lies within this part."""
        if self.is_at(size, stride, offset):
            return True
        mask = self.put(torch.zeros(self.base_size, dtype=torch.bool), torch.ones(self.size, dtype=torch.bool))
        return bool(mask.as_strided(size, stride, offset - self.base_offset).all())

    def is_at(self, size: tuple[int, ...], stride: tuple[int, ...], offset: int) -> bool:
        """Whether a view of that layout in the same memory is just this part."""
        return (size, stride, offset - self.base_offset) == (self.size, self.stride, self.offset)

    def put(self, grad: Tensor, new: Tensor) -> Tensor:
        """A gradient of the base with another part."""
        laid = torch.empty_strided(self.base_size, self.base_stride, dtype=grad.dtype, device=grad.device)
        laid.copy_(grad).as_strided(self.size, self.stride, self.offset).copy_(new)
        return laid

    def without(self, grad: Tensor) -> Tensor:
        """A gradient of the base with zeros in this part."""
        return self.put(grad, grad.new_zeros(self.size))


def region_of(leaf: Tensor) -> tuple[Edge, Region] | None:
    """Of a view that may be written to: its base's place in the graph, and the part it shows."""
    if not is_view(leaf):
        return None
    base = base_of(leaf)
    if base is None or not base.requires_grad or base.dtype != leaf.dtype or base.layout is not torch.strided:
        return None
    start = int(base.storage_offset())
    offset = int(leaf.storage_offset()) - start
    return edge_of(base), Region(base.size(), base.stride(), start, leaf.size(), leaf.stride(), offset)


class Kept:
    """Finds tensors of an output that somebody else has as well: in an attribute, a list, a caller's variable.

    What is done with these is no use of the output. Somebody else is known by references that the structure
    does not explain; a reference too many only costs a view.
    """

    def __init__(self) -> None:
        # What is counted where nobody else has a thing; measured, since it depends on Python and torch.
        self.alone = -1
        """What a hook counts of an output that nobody else has; -1 until it is known."""
        self._in_a_branch = 0

    def ids(self, output: Any, references: int) -> set[int]:
        """The ids of such tensors; `references` is what a hook counts of its argument `output`."""
        if self.alone < 0:
            with aside():
                self._in_a_branch = _unexplained((torch.empty(0),))[1][1]
                self.alone = _references_in_a_hook()
        whole = references > self.alone
        if type(output) is Tensor:
            return {id(output)} if whole else set()
        found = _unexplained(output)
        spare = {key for key, more in found[1:] if more > self._in_a_branch}
        if whole:
            spare.add(id(output))
        return _tensors_below(output, spare) if spare else spare


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


def _tensors_below(tree: Any, spare: set[int]) -> set[int]:
    """The ids of the tensors in those branches, or that are themselves among them."""
    found: set[int] = set()
    waiting, seen = [(tree, False)], set[int]()
    while waiting:
        node, inside = waiting.pop()
        inside = inside or id(node) in spare
        if isinstance(node, Tensor):
            found |= {id(node)} if inside else set()
        elif id(node) not in seen and (branch := parts(node)) is not None:
            seen.add(id(node))
            waiting += [(child, inside) for child in branch[1]]
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


def replaced_at(tree: Any, new: dict[int, Tensor]) -> Any:
    """`tree` with other tensors at the places of these numbers; a branch that can't be rebuilt stays as it is."""
    numbers = count()
    return map_leaves(lambda leaf: new.get(next(numbers), leaf), tree, Tensor)


class Copies:
    """Lists, dicts and objects of a caller that a module got a copy of, with other tensors in it.

    What the module writes into a copy is written into the original as well, when the module is done.
    """

    def __init__(self) -> None:
        self._copies: list[tuple[Any, Any, dict[Any, Any]]] = []

    def add(self, original: Any, copy: Any) -> None:
        """Notes every branch of `copy` that is another object than that of `original`."""
        if original is copy or isinstance(original, Tensor):
            return
        mine, theirs = _entries(original), _entries(copy)
        if not isinstance(original, tuple):
            self._copies.append((original, copy, theirs))
        for key, value in mine.items():
            self.add(value, theirs[key])

    def write_back(self) -> None:
        copies, self._copies = self._copies, []
        for original, copy, before in copies:
            after = _entries(copy)
            if isinstance(original, list) and len(after) != len(before):
                own = {id(value): original[key] for key, value in before.items()}
                original[:] = [own.get(id(value), value) for value in copy]
                continue
            for key, value in after.items():
                if key not in before or value is not before[key]:
                    _put(original, key, value)
            for key in before:
                if key not in after:
                    del original[key]


def _entries(branch: Any) -> dict[Any, Any]:
    found = parts(branch)
    return {} if found is None else dict(zip(found[0], found[1], strict=True))


def _put(branch: Any, key: Any, value: Any) -> None:
    if isinstance(branch, (list, MutableMapping)):
        branch[key] = value
    else:
        setattr(branch, key, value)
