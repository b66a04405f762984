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
SHARES = ("Sigmoid", "Softmax")
PLAIN = ("Mean", "Sum", "Add", "Mul", "Div", *VIEWS)
"""What may come between a score of overlap and the shares that it is made of; no difference, say."""
FAR = 16
"""So many operators on the way to them."""


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
    found.is_overlap = len(starts) == 1 and _is_overlap(starts[0])
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


def _is_overlap(node: Any) -> bool:
    """Whether a loss is a score of overlap, large where two agree: Dice, IoU, F1; 1 minus one is none.

    It is a quotient of which both parts depend on the same probabilities, and the upper one is made by products
    and sums of them alone.
    """
    for _ in range(FAR):
        if _name(node) == "Div":
            upper, lower = (node.next_functions[0][0], node.next_functions[-1][0])
            is_quotient = len(node.next_functions) == 2 and upper is not None and lower is not None
            if is_quotient:
                return _leads_to_shares(upper, with_product=True) and _leads_to_shares(lower, with_product=False)
        if _name(node) not in PLAIN:
            return False
        below = [one for one, _ in node.next_functions if one is not None]
        if len(below) != 1:
            return False
        node = below[0]
    return False


def _leads_to_shares(node: Any, *, with_product: bool) -> bool:
    """Whether probabilities lie below, behind sums alone, or a product of them with what has no graph as well."""
    has_product = False
    for _ in range(FAR):
        name = _name(node)
        if name in SHARES:
            return has_product or not with_product
        below = [one for one, _ in node.next_functions if one is not None]
        if not below or (with_product and (name not in PLAIN or len(below) != 1)):
            return False
        has_product = has_product or (name == "Mul" and _number(node) is None)
        node = below[0]
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
