"""Traced: what torch.compile sees where a tap is called.

These functions are followed by torch.compile, never run: they say which doors the graph gets. They must stay
within the Python that it understands; what needs more is in constants.py, marked as constant.
"""

from __future__ import annotations

from typing import Any

import torch

from hookline.backends.torch.compiled.classes import NUMBER
from hookline.backends.torch.compiled.constants import (
    ARGUMENTS,
    GRADIENTS,
    JOINT,
    OUTPUT,
    REPLACE,
    carries_tickets,
    described,
    door_number,
    met_at,
    need_classes,
    need_version,
    needs_of,
    point_door,
    refilled,
    replaces,
    replacing,
)
from hookline.backends.torch.compiled.hanging import COLLECTED, DELIVERED, HEARD, REPLACED
from hookline.backends.torch.compiled.places import note_mark

Look = tuple[int, bool, int]
"""One tap's look at a call: the door's number, whether its ticket reaches the backward, and what the tap needs."""


def call_of_tap(tap: Any, module: Any, *rest: Any) -> Any:
    """In place of `tap(module, *rest)`."""
    need_version()
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
    need_version()
    look = (point_door(point, tuple([_live(leaf) for leaf in tensors])), False, JOINT)
    tapped = _hung(tensors, [look], (0,), 0, False)
    return tapped[0] if len(tapped) == 1 else tapped


def call_of_replaced(replaced: Any, *args: Any, **kwargs: Any) -> Any:
    """In place of a forward that was replaced: what stands for it, followed as any other code."""
    need_version()
    return replaced.fn.traced(replaced.followed_original(), *args, **kwargs)


def _before(tap: Any, number: int, args: Any, kwargs: Any) -> Any:
    both = (args, kwargs)
    needs = needs_of(number, False, tap.index)
    if needs & REPLACE:
        replaces(number, False, tap.index)
        tensors: list[Any] = []
        numbers: list[Any] = []
        spec = described((*(both if needs & ARGUMENTS else ((), {})), None), tensors, numbers)
        door = door_number(number, False, tap.index, spec, tuple([_live(leaf) for leaf in tensors]))
        new, _ = torch.ops.hookline.passed(tensors, numbers, len(tensors), door)
        return refilled(both, iter(new))
    return _met(number, False, met_at(number, False, tap.index), args, kwargs, None)


def _after(tap: Any, number: int, args: Any, kwargs: Any, output: Any) -> Any:
    needs = needs_of(number, True, tap.index)
    if needs & REPLACE:
        replaces(number, True, tap.index)
        tensors: list[Any] = []
        numbers: list[Any] = []
        seen = (args, kwargs) if needs & ARGUMENTS else ((), {})
        spec = described((*seen, output if needs & OUTPUT else None), tensors, numbers)
        door = door_number(number, True, tap.index, spec, tuple([_live(leaf) for leaf in tensors]))
        new, _ = torch.ops.hookline.passed(tensors, numbers, len(_tensors(output)), door)
        return refilled(output, iter(new))
    return _met(number, True, met_at(number, True, tap.index), args, kwargs, output)


def _met(number: int, after: bool, indices: tuple[int, ...], args: Any, kwargs: Any, output: Any) -> Any:
    """What goes on where the taps at `indices` look at a call: the output, or (args, kwargs)."""
    tree = output if after else (args, kwargs)
    live = tuple([_live(leaf) for leaf in _tensors(tree)])
    looks: list[Look] = []
    for index in indices:
        needs = needs_of(number, after, index)
        gradients = needs & (GRADIENTS | JOINT)
        seen = (args, kwargs) if needs & ARGUMENTS or (gradients and not after) else ((), {})
        tensors: list[Any] = []
        numbers: list[Any] = []
        spec = described((*seen, output if needs & OUTPUT and after else None), tensors, numbers)
        door = door_number(number, after, index, spec, live)
        torch.ops.hookline.seen(tensors, numbers, door)
        looks.append((door, bool(gradients) and carries_tickets(number, door), needs))
    return _hung(tree, looks, replacing(number, after, indices), number, after)


def _hung(tree: Any, looks: list[Look], joint: tuple[int, ...], number: int, after: bool) -> Any:
    """`tree` to go on with: each of its tensors apart from other uses, its gradient told to those who look.

    Those at `joint` may replace gradients, one after the other. Where there are several tensors, all of them pass
    several times: from one passage to the next, one of those at `joint` gets all gradients before any goes on.
    """
    leaves = _tensors(tree)
    places = [place for place, leaf in enumerate(leaves) if _live(leaf)]
    listening = [look for look in looks if look[2] & GRADIENTS and not look[2] & JOINT]
    if not places or not (joint or listening):
        return tree
    wanting = [looks[at] for at in joint]
    last = len(wanting) if len(places) > 1 else 0
    for passage in range(last, -1, -1):
        hooks: list[tuple[str, int, bool]] = []
        if last == 0:
            hooks += [(REPLACED, door, carries) for door, carries, _ in wanting]
        if passage > 0:
            hooks.append((DELIVERED, wanting[passage - 1][0], wanting[passage - 1][1]))
        if passage < last:
            hooks.append((COLLECTED, wanting[passage][0], wanting[passage][1]))
        if passage == last:
            hooks += [(HEARD, door, carries) for door, carries, _ in listening]
        for place in places:
            leaves[place] = leaves[place].view_as(leaves[place])
            note_mark(number, after, place, tuple(hooks))
    return refilled(tree, iter(leaves))


def _tensors(tree: Any) -> list[Any]:
    tensors: list[Any] = []
    described(tree, tensors, [])
    return tensors


def _live(leaf: Any) -> bool:
    return bool(leaf.requires_grad) and torch.is_grad_enabled()
