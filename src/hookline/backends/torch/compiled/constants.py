"""Constants: what torch.compile asks for while it traces a tap, and takes for constants of the graph.

These functions run while a graph is traced, as plain Python; two are followed, as those of traced.py are.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import takewhile
from typing import Any, NoReturn

import torch

from hookline.backends.capabilities import capabilities
from hookline.backends.hook_point import Point
from hookline.backends.protocol import Rank
from hookline.backends.torch import compat
from hookline.backends.torch.attached import tapped_modules
from hookline.backends.torch.compiled.classes import retarget, tapped
from hookline.backends.torch.compiled.custom_ops import define
from hookline.backends.torch.compiled.doors import OPAQUE, TENSOR, VALUE, WHOLE, Door, Spec, add, door
from hookline.backends.torch.compiled.places import keep_in_order
from hookline.backends.torch.compiled.tickets import Ticket
from hookline.backends.torch.values import not_exported
from hookline.errors import Unsupported
from hookline.trees import parts

ARGUMENTS, OUTPUT, REPLACE, GRADIENTS, JOINT = 1, 2, 4, 8, 16
"""`Needs` as numbers: torch.compile follows arithmetic on these."""


@compat.constant_while_tracing
def need_version() -> None:
    """Unsupported where torch is older than those in whose graphs there may be taps."""
    capabilities()["torch"].need_version("compiled", torch.version.__version__)


@compat.constant_while_tracing
def door_number(number: int, after: bool, index: int, spec: Spec, live: tuple[bool, ...]) -> int:
    """The number of a new door for the tap at `index` of the class with this number."""
    compat.when_traced(keep_in_order)
    return add(Door(tapped(number), after, index, spec, live))


@compat.constant_while_tracing
def point_door(point: Point, live: tuple[bool, ...]) -> int:
    """The number of a new door where `point` gets the gradients of that many tensors."""
    define()
    one = Door(None, False, 0, None, live)
    one.latest = Ticket(live)
    _, one.latest.joint = point.listening(tuple(torch.empty(0) for _ in live))
    return add(one)


@compat.constant_while_tracing
def met_at(number: int, after: bool, index: int) -> tuple[int, ...]:
    """The indices of the taps that are met where the tap at `index` is called.

    Taps behind the edits are called in a row and hang their hooks on the same tensors. They are met together,
    where the first of them is called, and not again where the others are.
    """
    taps = tapped(number).taps(after)

    def goes_on(at: int, first: int) -> bool:
        together = all(tap.rank > Rank.EDIT and not tap.needs.replaces for tap in (taps[first], taps[at]))
        needs_kwargs = taps[at].kwargs and (taps[at].needs.inputs or not after)
        return together and (taps[first].kwargs or not needs_kwargs)

    first = 0
    for at in range(len(taps)):
        if not goes_on(at, first):
            if index < at:
                break
            first = at
    if index != first:
        return ()
    rest = takewhile(lambda at: goes_on(at, first), range(first + 1, len(taps)))
    return (first, *rest)


@compat.constant_while_tracing
def replacing(number: int, after: bool, indices: tuple[int, ...]) -> tuple[int, ...]:
    """Which of these taps may replace gradients, as numbers along them, in the order of a backward."""
    taps = [tapped(number).taps(after)[index] for index in indices]
    joint = [at for at, tap in enumerate(taps) if tap.needs.joint]
    return tuple(sorted(joint, key=lambda at: not taps[at].first_in_backward))


@compat.constant_while_tracing
def needs_of(number: int, after: bool, index: int) -> int:
    """What the tap at `index` needs, as a sum of the numbers above."""
    define()
    tap = tapped(number).taps(after)[index]
    if compat.is_exporting():
        raise not_exported(f"a {tap.label.kind} at {tap.label.site!r}")
    needs = tap.needs
    wanted = {
        ARGUMENTS: needs.inputs,
        OUTPUT: needs.outputs,
        REPLACE: needs.replaces,
        GRADIENTS: needs.grads,
        JOINT: needs.joint,
    }
    return sum(number for number, is_wanted in wanted.items() if is_wanted)


@compat.constant_while_tracing
def carries_tickets(number: int, place: int) -> bool:
    """Whether tensors that the door at `place` makes reach the backward.

    Not out of a checkpointed part: torch wants to recompute these, and can't. Gradients there are those of the
    latest call, which is the right one unless several forwards come before a backward.
    """
    one = door(place)
    one.remembers = compat.in_checkpoint()
    if one.remembers:
        tapped(number).remembering.append(one)
    return not one.remembers


@compat.constant_while_tracing
def replaces(number: int, after: bool, index: int) -> None:
    """Unsupported where values can't be replaced."""
    if compat.in_checkpoint():
        label = tapped(number).taps(after)[index].label
        raise Unsupported(
            backend="torch",
            feature=f"a {label.kind} at {label.site!r}",
            why="the site is in a part that torch.utils.checkpoint recomputes, and the model is compiled",
            instead="run the model eagerly, or place it around the checkpointed part",
        )


@compat.constant_while_tracing
def need_classes() -> NoReturn:
    """Gives all tapped modules their classes and has the tracing begin anew.

    Taps that were placed before anything was compiled are on modules of plain classes until then.
    """
    for module in tapped_modules():
        retarget(module)
    compat.trace_again("hookline's taps were met for the first time")


def described(tree: Any, tensors: list[Any], numbers: list[Any]) -> Spec:
    """The Spec of `tree`; its tensors and whole numbers are added to the lists. Traced."""
    if isinstance(tree, torch.Tensor):
        tensors.append(tree)
        return TENSOR
    if tree is None or isinstance(tree, (bool, float, str, torch.dtype, torch.device)):
        return (VALUE, tree)
    if isinstance(tree, int):
        numbers.append(tree)
        return WHOLE
    branch = parts(tree)
    if branch is None:
        return (OPAQUE, type(tree).__name__)
    return (type(tree), tuple(branch[0]), tuple([described(child, tensors, numbers) for child in branch[1]]))


def refilled(tree: Any, tensors: Iterator[Any]) -> Any:
    """`tree` with other tensors in the places of its own. Traced."""
    if isinstance(tree, torch.Tensor):
        return next(tensors)
    branch = parts(tree)
    if branch is None:
        return tree
    return branch[2]([refilled(child, tensors) for child in branch[1]])
