"""Doors: the numbers by which a graph refers to taps, and the structures whose tensors it hands over.

While a graph is traced, the arguments and the output of a module are taken apart: tensors and whole numbers go
through the graph, everything else is described by constants. When it runs, the structure is put together again.
"""

from __future__ import annotations

import dataclasses
import weakref
from collections.abc import Iterator
from itertools import takewhile
from typing import Any, NoReturn

import torch

from hookline.backends.capabilities import capabilities
from hookline.backends.points import Point
from hookline.backends.protocol import Rank, Tap
from hookline.backends.torch import compat
from hookline.backends.torch.compiled import operators
from hookline.backends.torch.compiled.classes import Tapped, retarget, tapped
from hookline.backends.torch.compiled.places import keep_in_order
from hookline.backends.torch.compiled.running import Run
from hookline.backends.torch.values import not_exported
from hookline.errors import Unsupported
from hookline.trees import parts

ARGUMENTS, OUTPUT, REPLACE, GRADIENTS, JOINT = 1, 2, 4, 8, 16
"""`Needs` as numbers: torch.compile follows arithmetic on these."""

TENSOR, WHOLE, OPAQUE, VALUE = "tensor", "int", "object", "value"
Spec = Any
"""TENSOR or WHOLE, (VALUE, a constant), (OPAQUE, the name of its type), or (type, keys, specs of the parts)."""


class Door:
    """One place in a graph where a tap looks in."""

    __slots__ = ("_tapped", "after", "index", "latest", "live", "remembers", "spec")

    def __init__(self, state: Tapped | None, after: bool, index: int, spec: Spec, live: tuple[bool, ...]) -> None:
        self._tapped = (lambda: None) if state is None else weakref.ref(state)
        self.after, self.index, self.spec, self.live = after, index, spec, live
        self.remembers = False  # its latest call, for gradients that come without a ticket
        self.latest: Run | None = None

    def open(self) -> tuple[Any, Tap] | None:
        """The module and the tap that is there now; None where nobody looks any more."""
        state = self._tapped()
        module = None if state is None else state.module()
        if state is None or module is None or self.index >= len(taps := state.taps(self.after)):
            return None
        state.ran = True
        return module, taps[self.index]

    def built(self, tensors: Any, numbers: Any) -> Any:
        """(args, kwargs, output) with these tensors and whole numbers in their places."""
        args, kwargs, output = _built(self.spec, iter(tensors), iter(numbers))
        if (state := self._tapped()) is not None:
            kwargs = state.kwargs_of_call(kwargs, self.after, self.index)
        return args, kwargs, output


_doors: list[Door] = []


def door(number: int) -> Door:
    return _doors[number]


# What follows runs while a graph is traced, as plain Python, and its results are constants of the graph.


@compat.constant_while_tracing
def need_version() -> None:
    """Unsupported where torch is older than those in whose graphs there may be taps."""
    capabilities()["torch"].need_version("compiled", torch.version.__version__)


@compat.constant_while_tracing
def door_number(number: int, after: bool, index: int, spec: Spec, live: tuple[bool, ...]) -> int:
    """The number of a new door for the tap at `index` of the class with this number."""
    compat.when_traced(keep_in_order)
    _doors.append(Door(tapped(number), after, index, spec, live))
    return len(_doors) - 1


@compat.constant_while_tracing
def point_door(point: Point, live: tuple[bool, ...]) -> int:
    """The number of a new door where `point` gets the gradients of that many tensors."""
    operators.define()
    run = Run(live)
    _, run.joint = point.listening(tuple(torch.empty(0) for _ in live))
    _doors.append(Door(None, False, 0, None, live))
    _doors[-1].latest = run
    return len(_doors) - 1


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
    operators.define()
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
    one = _doors[place]
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
    from hookline.backends.torch.taps import tapped_modules

    for module in tapped_modules():
        retarget(module)
    compat.trace_again("hookline's taps were met for the first time")


class Opaque:
    """Stands for an object that is no structure of tensors: compiled code can't hand it to a tap."""

    def __init__(self, kind: str) -> None:
        self.kind = kind

    def __repr__(self) -> str:
        return f"<a {self.kind}, which compiled code does not hand over>"


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


def _built(spec: Spec, tensors: Iterator[Any], numbers: Iterator[Any]) -> Any:
    if spec == TENSOR:
        return next(tensors)
    if spec == WHOLE:
        return next(numbers)
    if spec[0] == VALUE:
        return spec[1]
    if spec[0] == OPAQUE:
        return Opaque(spec[1])
    kind, keys, children = spec
    return _made(kind, keys, [_built(child, tensors, numbers) for child in children])


def _made(kind: type, keys: tuple[Any, ...], children: list[Any]) -> Any:
    """A structure of this type; constructors differ, and most are passed by."""
    if kind in (tuple, list):
        return kind(children)
    if issubclass(kind, tuple):
        return kind._make(children) if hasattr(kind, "_make") else kind(children)
    if issubclass(kind, list):
        fresh: Any = kind()
        fresh.extend(children)
        return fresh
    named = dict(zip(keys, children, strict=True))
    if kind is dict:
        return named
    if dataclasses.is_dataclass(kind):
        if issubclass(kind, dict):  # the outputs of transformers are both
            return kind(**named)
        fresh = object.__new__(kind)
        for name, value in named.items():
            object.__setattr__(fresh, name, value)
        return fresh
    fresh = kind()
    for key, value in named.items():
        fresh[key] = value
    return fresh
