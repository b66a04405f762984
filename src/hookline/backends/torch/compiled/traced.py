"""Traced: what torch.compile sees where a tap is called.

These functions are followed by torch.compile, never run: they say which doors the graph gets. They must stay
within the Python that it understands; what needs more is in doors.py, marked as constant.
"""

from __future__ import annotations

from typing import Any

import torch

from hookline.backends.torch.compiled.classes import NUMBER
from hookline.backends.torch.compiled.doors import (
    ARGUMENTS,
    GRADIENTS,
    JOINT,
    OUTPUT,
    REPLACE,
    carries_tickets,
    check_views,
    described,
    door_number,
    need_classes,
    needs_of,
    note_views,
    point_door,
    refilled,
    replaces,
    writes,
)
from hookline.backends.torch.compiled.operators import Gate


def call_of_tap(tap: Any, module: Any, *rest: Any) -> Any:
    """In place of `tap(module, *rest)`."""
    number = getattr(type(module), NUMBER, 0)
    if number == 0:
        need_classes()
    if tap.after:
        return _after(tap, number, rest[0], rest[1] if tap.kwargs else {}, rest[-1])
    new_args, new_kwargs = _before(tap, number, rest[0], rest[1] if tap.kwargs else {})
    return (new_args, new_kwargs) if tap.kwargs else new_args


def call_of_inert(inert: Any, module: Any, *rest: Any) -> None:
    """In place of a tap that a copied model has: nothing."""


def call_of_point(point: Any, *tensors: Any) -> Any:
    """In place of a HookBackward."""
    live = tuple([_live(leaf) for leaf in tensors])
    # Copies, not views: a view that is written to later hears nothing any more.
    fresh = tuple([leaf.clone() if _live(leaf) else leaf for leaf in tensors])
    tapped = _hung(fresh, None, point_door(point, live), True)
    return tapped[0] if len(tapped) == 1 else tapped


def call_of_replaced(replaced: Any, *args: Any, **kwargs: Any) -> Any:
    """In place of a forward that was replaced: what stands for it, followed as any other code."""
    return replaced.fn.traced(replaced.original, *args, **kwargs)


def _before(tap: Any, number: int, args: Any, kwargs: Any) -> Any:
    needs = needs_of(number, False, tap.index)
    both = (args, kwargs)
    gradients = needs & (GRADIENTS | JOINT)
    if gradients and not writes(number):
        # A view: what comes back to it is the module's own share of the gradient.
        both = refilled(both, iter(_views(_tensors(both))))
    seen = both if needs & (ARGUMENTS | GRADIENTS) else ((), {})
    tensors: list[Any] = []
    numbers: list[Any] = []
    spec = described((*seen, None), tensors, numbers)
    live = tuple([_live(leaf) for leaf in tensors])
    door = door_number(number, False, tap.index, spec, live)
    if needs & REPLACE:
        replaces(number, False, tap.index)
        new, _ = torch.ops.hookline.passed(tensors, numbers, len(tensors), door)
        return refilled(both, iter(new))
    ticket = torch.ops.hookline.seen(tensors, numbers, door)
    if gradients:
        note_views(number)
        both = _hung(both, ticket if carries_tickets(number, door) else None, door, needs & JOINT)
    return both


def _after(tap: Any, number: int, args: Any, kwargs: Any, output: Any) -> Any:
    needs = needs_of(number, True, tap.index)
    seen = (args, kwargs) if needs & ARGUMENTS else ((), {})
    tensors: list[Any] = []
    numbers: list[Any] = []
    spec = described((*seen, output if needs & OUTPUT else None), tensors, numbers)
    if needs & REPLACE:
        replaces(number, True, tap.index)
        count = len(_tensors(output))
        door = door_number(number, True, tap.index, spec, tuple([_live(leaf) for leaf in tensors]))
        new, _ = torch.ops.hookline.passed(tensors, numbers, count, door)
        return refilled(output, iter(new))
    live = tuple([_live(leaf) for leaf in _tensors(output)])
    door = door_number(number, True, tap.index, spec, live)
    ticket = torch.ops.hookline.seen(tensors, numbers, door)
    if needs & (GRADIENTS | JOINT):
        check_views()
        return _hung(output, ticket if carries_tickets(number, door) else None, door, needs & JOINT)
    return None


def _hung(tree: Any, ticket: Any, door: int, joint: Any) -> Any:
    """`tree` to go on with, gradients of its tensors told to the holder of the ticket."""
    distinct: list[Any] = []
    at: list[list[int]] = []
    for place, leaf in enumerate(_tensors(tree)):
        if _live(leaf):
            known = [n for n, other in enumerate(distinct) if other is leaf]
            if known:
                at[known[0]].append(place)
            else:
                distinct.append(leaf)
                at.append([place])
    if not joint:
        for leaf, places in zip(distinct, at, strict=True):
            _listen(leaf, ticket, places, door)
        return tree
    if len(distinct) == 1:
        _replace(distinct[0], ticket, at[0], door)
    if len(distinct) < 2:
        return tree
    gated = Gate.apply(ticket, [places[0] for places in at], door, *distinct)  # type: ignore[no-untyped-call]
    new = list(_tensors(tree))
    for leaf, places in zip(gated, at, strict=True):
        for place in places:
            new[place] = leaf
    return refilled(tree, iter(new))


def _listen(leaf: Any, ticket: Any, places: list[int], door: int) -> None:
    leaf.register_hook(lambda grad: torch.ops.hookline.heard(grad, ticket, places, door))


def _replace(leaf: Any, ticket: Any, places: list[int], door: int) -> None:
    leaf.register_hook(lambda grad: torch.ops.hookline.regraded(grad, ticket, places, door))


def _tensors(tree: Any) -> list[Any]:
    tensors: list[Any] = []
    described(tree, tensors, [])
    return tensors


def _live(leaf: Any) -> bool:
    return bool(leaf.requires_grad) and torch.is_grad_enabled()


def _views(tensors: list[Any]) -> list[Any]:
    """A view of each tensor that needs a gradient; the same for a tensor that comes twice."""
    views: list[Any] = []
    for place, leaf in enumerate(tensors):
        earlier = [view for view, other in zip(views, tensors[:place], strict=True) if other is leaf]
        if earlier:
            views.append(earlier[0])
        else:
            views.append(leaf.view_as(leaf) if _live(leaf) else leaf)
    return views
