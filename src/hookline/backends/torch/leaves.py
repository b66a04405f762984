"""Leaves: the differentiable tensors of a structure, and what can be hung on them."""

from __future__ import annotations

from typing import Any

import torch

from hookline.backends.protocol import GradSink
from hookline.backends.torch.compat import base_of, graph_task, version
from hookline.trees import leaves

Tensor = torch.Tensor


def differentiable(tree: Any) -> tuple[list[tuple[Tensor, list[int]]], int]:
    """The distinct tensors of `tree` that require a gradient, with the numbers of the places where
    each stands, and how many places there are in all.

    >>> x, y = torch.ones(1, requires_grad=True), torch.ones(1)
    >>> found, places = differentiable((x, y, {"again": x}))
    >>> [numbers for _, numbers in found], places
    ([[0, 2]], 3)
    """
    # Without autograd, a tensor that passes through is of no graph that this call makes.
    enabled = torch.is_grad_enabled()
    if type(tree) is Tensor:
        return ([(tree, [0])] if enabled and tree.requires_grad else []), 1
    found: dict[int, tuple[Tensor, list[int]]] = {}
    places = 0
    for leaf in leaves(tree, Tensor):
        if enabled and leaf.requires_grad:
            found.setdefault(id(leaf), (leaf, []))[1].append(places)
        places += 1
    return list(found.values()), places


def aliased(leaf: Tensor) -> Tensor:
    """A view of all of `leaf`; `leaf` itself where its layout has no such view."""
    if leaf.layout is not torch.strided or leaf.is_nested:
        return leaf
    alias = leaf.view_as(leaf)
    if vars(leaf):  # attributes that somebody hung on the tensor
        vars(alias).update(vars(leaf))
    return alias


def whole_base(view: Tensor) -> Tensor | None:
    """The tensor that `view` shows all of, element for element; None where there is none."""
    base = base_of(view)
    if base is None or base.numel() != view.numel() or not base.requires_grad:
        return None
    alike = base.shape == view.shape and base.stride() == view.stride()
    return base if alike or (base.is_contiguous() and view.is_contiguous()) else None


class Ear:
    """Hears the gradient of a leaf by its alias or, where autograd dropped the alias, by the leaf.

    Autograd drops a view from the graph when it is written to in place. The gradient of the value
    before the writing then arrives at the original only.
    """

    __slots__ = ("fallback", "heard_in", "numbers", "sink", "watched")

    def __init__(self, numbers: list[int], sink: GradSink) -> None:
        self.numbers = numbers
        self.sink = sink
        self.fallback = sink  # what hears the original's gradient, where that is more than the alias's
        self.heard_in = -1
        self.watched: tuple[Tensor, int] | None = None

    def watch(self, alias: Tensor) -> None:
        """From now on, whether `alias` is written to is found out when the gradient arrives."""
        self.watched = alias.detach(), version(alias)  # no history: it would close a cycle through C++

    def alias(self, grad: Tensor) -> Any:
        self.heard_in = graph_task()
        return self.sink(self.numbers, grad)

    def original(self, grad: Tensor) -> Any:
        if self.watched is None or self.heard_in == graph_task() or version(self.watched[0]) == self.watched[1]:
            return None
        self.heard_in = graph_task()
        return self.fallback(self.numbers, grad.reshape(self.watched[0].shape))
