"""Posts: what hookline has at a module of NNX, which has no hooks of its own."""

from __future__ import annotations

import itertools
import weakref
from collections.abc import Callable
from typing import Any, NamedTuple

from flax import nnx

from hookline.backends.nnx.replay import Shares, Waiting
from hookline.backends.subclass import base_of
from hookline.backends.tap import Label, Rank, StatsSpec, Tap, backwards_in_order

RAW = StatsSpec(histogram=False, functions=(), dim=-1)
"""The view of a tap that wants the arrays themselves."""

_numbers = itertools.count()


class Spec(NamedTuple):
    """What compiled code has to send from one module, in which views."""

    begins: bool = False
    ends: bool = False
    inputs: frozenset[StatsSpec] = frozenset()
    outputs: frozenset[StatsSpec] = frozenset()
    grads: frozenset[StatsSpec] = frozenset()
    params: bool = False
    operators: bool = False
    steps: frozenset[StatsSpec] = frozenset()


class ModuleTaps:
    """All taps of one module."""

    def __init__(self, module: nnx.Module) -> None:
        self.module = weakref.ref(module)
        self.base = base_of(type(module))
        self.taps: list[Tap] = []
        self.forwards: tuple[tuple[Callable[..., Any], Label], ...] = ()  # each has those before it as original
        self.number = next(_numbers)
        self.op_watchers: list[Any] = []
        self.param_sinks: list[tuple[Callable[[str, Any], None], Label]] = []
        self.closed_over = False  # code was compiled that holds the module itself and not a split one
        self.waiting = Waiting()
        self.shares = Shares()
        self.classes: dict[Any, type] = {}

    def before(self) -> list[Tap]:
        """The taps before the forward in the order of Rank."""
        return sorted(
            (tap for tap in self.taps if not tap.after),
            key=lambda tap: (_BEFORE[tap.rank], *backwards_in_order(tap)),
        )

    def after(self) -> list[Tap]:
        """The taps after the forward in the order of Rank."""
        return sorted(
            (tap for tap in self.taps if tap.after), key=lambda tap: (tap.rank, *backwards_in_order(tap))
        )

    def spec(self) -> Spec:
        """What the taps of now ask of compiled code."""
        seeing = [tap for tap in self.taps if observes(tap)]
        counting = [tap for tap in seeing if counts(tap)]
        return Spec(
            begins=any(not tap.after for tap in counting),
            ends=any(tap.after for tap in counting),
            inputs=frozenset(view_of(tap) for tap in seeing if tap.needs.inputs),
            outputs=frozenset(view_of(tap) for tap in seeing if tap.needs.outputs),
            grads=frozenset(view_of(tap) for tap in seeing if tap.needs.grads),
            params=bool(self.param_sinks),
            operators=bool(self.op_watchers),
            steps=frozenset(tap.needs.statistics for tap in counting if tap.needs.statistics is not None),
        )


_BEFORE = {Rank.ORIGINAL: -1, Rank.EDIT: 0, Rank.OBSERVE: 1, Rank.STOP: 1, Rank.GRADIENT: 2}

_posts: dict[int, ModuleTaps] = {}

live: dict[int, Label] = {}
"""The labels of all taps in place: a program that was compiled with others may still run."""


def module_taps_of(module: nnx.Module) -> ModuleTaps:
    """The module's post, made if there is none; a copy of a module with taps gets one of its own."""
    found = _posts.get(id(module))
    if found is None or found.module() is not module:
        found = _posts[id(module)] = ModuleTaps(module)
        weakref.finalize(module, _posts.pop, id(module), None)
    return found


def post_at(module: nnx.Module) -> ModuleTaps | None:
    """The module's post; None where it has none."""
    found = _posts.get(id(module))
    return found if found is not None and found.module() is module else None


def observes(tap: Tap) -> bool:
    """Whether a tap only looks, so that it can be told of a call later."""
    return tap.rank in (Rank.OBSERVE, Rank.STOP)


def counts(tap: Tap) -> bool:
    """Whether a tap looks at no value and only counts calls."""
    return not tap.needs.inputs and not tap.needs.outputs


def view_of(tap: Tap) -> StatsSpec:
    """In which form a tap takes values."""
    return RAW if tap.needs.statistics is None else tap.needs.statistics


def post_in(kind: type) -> ModuleTaps | None:
    """The post that a class goes by; None for a class without taps."""
    found: ModuleTaps | None = kind.__dict__.get("__hookline_post__")
    return found
