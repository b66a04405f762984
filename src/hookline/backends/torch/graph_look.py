"""Graph look: what a loss depends on, by autograd's graph, walked once from the loss backwards.

Nothing of the graph is kept: nodes are noted by their numbers. Code that a graph does not show (torch.compile, a
checkpoint, an autograd.Function of somebody's own) is met as one node; what is behind it is then not known.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch.autograd.function import BackwardCFunction

from hookline.backends.torch.compat import node_number
from hookline.backends.wired import Node, Walked
from hookline.trees import leaves

MOST_NODES = 100_000
"""Of a larger graph no more is looked at."""
LAST_OPERATORS = 8
"""So many operators of a loss are told."""
VIEWS = (
    "View",
    "Reshape",
    "Alias",
    "Expand",
    "Transpose",
    "Permute",
    "Slice",
    "Select",
    "T",
    "Squeeze",
    "Unsqueeze",
)
"""Nodes that go where their tensor is written to in place: the graph then has the one before them."""
SUMS = ("Sum", "Nansum")


def walked(tensors: Iterable[torch.Tensor]) -> Walked:
    """What these losses depend on."""
    found = Walked()
    roots = [tensor for tensor in tensors if tensor.requires_grad]
    found.leaves |= {id(root) for root in roots if root.grad_fn is None}
    starts = [root.grad_fn for root in roots if root.grad_fn is not None]
    behind = _walk(starts, found, found.leaves, MOST_NODES)
    if behind:  # compiled code
        _walk(behind, found, found.maybe, MOST_NODES - len(found.nodes))
        found.maybe -= found.leaves
    told = [_divided(node) for node in starts]
    found.divided = True if True in told else None if None in told or not told else False
    found.operators = _last_operators(starts[0]) if starts else []
    return found


def _walk(starts: list[Any], found: Walked, into: set[int], most: int) -> list[Any]:
    """Notes all nodes and leaves below `starts`; gives back those behind compiled code."""
    seen, stack = set(starts), list(starts)
    behind: list[Any] = []
    while stack:
        node = stack.pop()
        if len(seen) > most:
            found.is_whole = False
            break
        name = node.name()
        variable = getattr(node, "variable", None) if name == "torch::autograd::AccumulateGrad" else None
        if variable is not None:
            into.add(id(variable))
            continue
        found.nodes.add((node_number(node), name))
        if isinstance(node, BackwardCFunction) and _hides(node, name):
            found.is_whole = False
        below = behind if name.startswith("CompiledFunction") else stack
        for child, _ in node.next_functions:
            if child is not None and child not in seen:
                seen.add(child)
                below.append(child)
    return behind


def _hides(node: Any, name: str) -> bool:
    """Whether a node is a Function of somebody's own, which may compute with more than it was given."""
    made_by = getattr(type(node), "_forward_cls", None)
    return not name.startswith("CompiledFunction") and not str(getattr(made_by, "__module__", "")).startswith(
        ("hookline.", "torch.nn.utils", "torch.distributed", "torch.nn.parallel")
    )


def leaves_below(tensor: torch.Tensor, most: int) -> set[int]:
    """The ids of the leaves that a tensor depends on."""
    found = Walked()
    if tensor.grad_fn is None:
        return {id(tensor)}
    _walk(_walk([tensor.grad_fn], found, found.leaves, most), found, found.leaves, most)
    return found.leaves


def nodes_of(tree: Any) -> tuple[list[Node], bool]:
    """The nodes that made these tensors, and whether any tensor of them could have one."""
    nodes: list[Node] = []
    could = False
    for tensor in leaves(tree, torch.Tensor):
        could = could or tensor.is_floating_point() or tensor.is_complex()
        node = tensor.grad_fn if tensor.requires_grad else None
        if node is None:
            continue
        nodes.append((node_number(node), node.name()))
        if node.name().removesuffix("0").removesuffix("Backward").startswith(VIEWS):
            nodes += [(node_number(one), one.name()) for one, _ in node.next_functions if one is not None]
    return nodes, could


def _divided(node: Any) -> bool | None:
    """Whether the last that was done to a loss, but for the factor of a scaler, is a division by a number above 1.

    Of a sum nobody knows: by the number of its parts it is a mean.
    """
    for _ in range(2):
        name = _name(node)
        if name not in ("Div", "Mul"):
            return False
        factor = _number(node)
        if factor is None:
            return False
        below = next((one for one, _ in node.next_functions if one is not None), None)
        is_division = factor > 1 if name == "Div" else 0 < factor < 1
        if is_division:
            return None if below is None or _name(below) in SUMS else True
        if below is None:
            return False
        node = below
    return False


def _number(node: Any) -> float | None:
    """The number that a node multiplied or divided by; None where it has several elements or a graph."""
    if sum(one is not None for one, _ in node.next_functions) != 1:
        return None
    try:
        other = node._saved_other
        other = node._saved_self if other is None else other
        return float(other) if other is not None and other.numel() == 1 else None
    except (AttributeError, RuntimeError):
        return None


def _last_operators(node: Any) -> list[str]:
    found: list[str] = []
    while node is not None and len(found) < LAST_OPERATORS:
        name = _name(node)
        if name == "torch::autograd::AccumulateGrad":
            break
        found.append(name)
        node = next((one for one, _ in node.next_functions if one is not None), None)
    return found


def _name(node: Any) -> str:
    """`MseLoss` of a node MseLossBackward0."""
    return str(node.name()).rstrip("0123456789").removesuffix("Backward")
