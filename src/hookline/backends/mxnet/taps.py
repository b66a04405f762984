"""Taps on a block, by a class of its own for as long as they are there.

Gluon's own hooks only look: what they return is dropped. And a call can't be caught on the object itself, since
Python looks for `__call__` on the class. So a block with taps is of a class that derives from its own, has its
name, and differs in the call alone. The taps are kept beside the block: its __dict__ stays as it was, and a copy
or a pickle is of the block's own class, with no tap.

Gluon's own hooks run inside: they see the arguments after hookline's edits, and the output before them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import lru_cache, partial
from typing import Any
from weakref import WeakKeyDictionary

from mxnet import symbol

from hookline.backends.changing import changing
from hookline.backends.mxnet import backward, compat, dehybridize
from hookline.backends.mxnet.unseen import unseen
from hookline.backends.nouns import Module, Tree
from hookline.backends.protocol import FunctionTap, Label, Placement, Rank, Tap
from hookline.backends.subclass import base_of, is_made, subclass
from hookline.backends.tap import backwards_in_order, put_in_order
from hookline.backends.undoing import Undoing
from hookline.trees import leaves

_NDArray = compat.NDArray


class Taps:
    """What sits on one block. The tuples are replaced, never changed: a call goes on with those it began with."""

    def __init__(self) -> None:
        self.before: tuple[Tap, ...] = ()
        self.after: tuple[Tap, ...] = ()
        self.forwards: tuple[FunctionTap, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.before or self.after or self.forwards)

    def add(self, tap: Tap) -> None:
        put_in_order(tap)
        if tap.after:
            self.after = tuple(sorted((*self.after, tap), key=_after_forward))
        else:
            self.before = tuple(sorted((*self.before, tap), key=_before_forward))

    def remove(self, tap: Tap) -> None:
        self.before = tuple(other for other in self.before if other is not tap)
        self.after = tuple(other for other in self.after if other is not tap)
        self.forwards = tuple(other for other in self.forwards if other is not tap)

    def all(self) -> Iterator[Tap]:
        yield from self.before
        yield from self.after
        yield from self.forwards


# The order of Rank, with one difference: gradients that are edited are seen by a recording after the edits, so its
# identity comes before theirs.


def _before_forward(tap: Tap) -> tuple[int, bool, int]:
    late = {Rank.OBSERVE: 1, Rank.STOP: 1, Rank.GRADIENT: 2}.get(tap.rank, 0)
    return late, *backwards_in_order(tap)


def _after_forward(tap: Tap) -> tuple[int, bool, int]:
    late = {Rank.ORIGINAL: 0, Rank.EDIT: 1, Rank.OBSERVE: 2, Rank.GRADIENT: 3, Rank.STOP: 4}[tap.rank]
    return late, *backwards_in_order(tap)


_taps: WeakKeyDictionary[Any, Taps] = WeakKeyDictionary()


def attach(undoing: Undoing, placements: list[Placement]) -> None:
    """Places a tap for each placement."""
    # At the end: a backward that somebody started by a name from before the taps may still run.
    undoing.noted(backward.settle)
    dehybridize.hold_around(undoing, [block for block, tap in placements if not tap.may_miss])
    undoing.noted(_remove, placements)
    _add(placements)


@changing
def _add(placements: list[Placement]) -> None:
    for block, tap in placements:
        taps_of(block).add(tap)
        _settle_class(block)


@changing
def _remove(placements: list[Placement]) -> None:
    for block, tap in placements:
        taps_of(block).remove(tap)
        _settle_class(block)


def replace_forward(undoing: Undoing, module: Module, fn: Callable[..., Any], label: Label) -> None:
    """Has `fn(original, *args, **kwargs)` run in place of the block's own call."""
    dehybridize.hold_around(undoing, [module])
    around_calls(undoing, module, fn, label)


def around_calls(undoing: Undoing, module: Module, fn: Callable[..., Any], label: Label) -> None:
    """As `replace_forward`, for the calls that there are: in a compiled graph, there are none."""
    tap = FunctionTap(fn, label)
    undoing.noted(_remove, [Placement(module, tap)])
    _put_around(module, tap)


@changing
def _put_around(module: Module, tap: FunctionTap) -> None:
    taps = taps_of(module)
    taps.forwards = (*taps.forwards, tap)
    _settle_class(module)


def taps_of(block: Module) -> Taps:
    """The taps of a block; to be changed by `attach` alone."""
    return _taps.setdefault(block, Taps())


def taps_on(block: Module) -> list[Tap]:
    """Every tap on this block."""
    found = _taps.get(block)
    return [] if found is None else list(found.all())


def _settle_class(block: Module) -> None:
    """Has the block be of the class that its taps want."""
    kind: Any = type(block)
    if _taps.get(block):
        if not is_made(kind):
            object.__setattr__(block, "__class__", _tapped_class(kind))
    else:
        _taps.pop(block, None)
        if is_made(kind):
            object.__setattr__(block, "__class__", base_of(kind))


class _Tapped(type):
    """The class of the classes of blocks with taps: each stands for the one that it was made of."""

    def __instancecheck__(cls, thing: Any) -> bool:
        return isinstance(thing, base_of(cls))

    def __subclasscheck__(cls, kind: type) -> bool:
        return issubclass(kind, base_of(cls))


@lru_cache(maxsize=256)
def _tapped_class(own: Any) -> Any:
    """The class for blocks of class `own` that have taps."""

    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        return _called(own, self, args, kwargs)

    def new(cls: Any, *args: Any, **kwargs: Any) -> Any:
        return own(*args, **kwargs)  # a slice of a Sequential is made by type(self)(...)

    def hybridize(self: Any, *args: Any, **kwargs: Any) -> Any:
        result = own.hybridize(self, *args, **kwargs)
        dehybridize.hold_again()
        return result

    kind = type("TappedOf", (_Tapped, *({type(own)} - {type})), {})
    return subclass(own, {"__slots__": (), "__call__": call, "__new__": new, "hybridize": hybridize}, kind)


def _called(own: Any, block: Module, args: Tree, kwargs: Any) -> Any:
    """One call of a block with taps. Written out: it runs for every call of every block with a hook."""
    taps = _taps.get(block)
    if taps is None or _is_symbolic(args, kwargs):
        # Gluon traces a graph, to learn shapes or to compile a part of this block: nothing flows.
        return own.__call__(block, *args, **kwargs)
    backward.raise_failure()
    after, forwards = taps.after, taps.forwards
    if taps.before:
        args, kwargs = _before(taps.before, block, args, kwargs)
    if forwards:
        run: Callable[..., Any] = partial(own.__call__, block)
        for tap in forwards:
            run = partial(tap, run)
        output = run(*args, **kwargs)
    else:
        output = own.__call__(block, *args, **kwargs)
    return _after(after, block, args, kwargs, output) if after else output


def _before(taps: tuple[Tap, ...], block: Module, args: Tree, kwargs: Any) -> tuple[Any, Any]:
    """The arguments to go on with."""
    with unseen():
        for tap in taps:
            if not tap.kwargs:
                if (new := tap(block, args)) is not None:
                    args = new
            elif (new := tap(block, args, kwargs)) is not None:
                args, kwargs = new
    return args, kwargs


def _after(taps: tuple[Tap, ...], block: Module, args: Tree, kwargs: Any, output: Tree) -> Any:
    """The output to go on with."""
    with unseen():
        for tap in taps:
            new = tap(block, args, kwargs, output) if tap.kwargs else tap(block, args, output)
            if new is not None:
                output = new
    return output


def _is_symbolic(args: Tree, kwargs: Any) -> bool:
    if args and type(args[0]) is _NDArray:
        return False
    return next(leaves((args, kwargs), symbol.Symbol), None) is not None
