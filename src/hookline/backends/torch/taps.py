"""Taps: hookline's entries in the hook dictionaries of torch modules.

A tap is placed where torch's own hooks are, so that it lives beside anybody else's. It differs from
a plain function in one thing: a copy of the model, by deepcopy or pickle, carries no live tap.
"""

from __future__ import annotations

import functools
import itertools
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from typing import Any

from torch import nn

from hookline.backends.protocol import Label, Rank, Wish
from hookline.backends.torch.compat import (
    POST_HOOKS,
    POST_WITH_KWARGS,
    PRE_HOOKS,
    PRE_WITH_KWARGS,
    fresh_hook_id,
    tensor_hooks,
)

_order = itertools.count()


class Tap(functools.partial):  # type: ignore[type-arg]  # a partial is the fastest callable that can have methods
    """A function of hookline in a hook dictionary, with a label that says whose it is."""

    label: Label
    rank: Rank
    order: int

    def __deepcopy__(self, memo: dict[int, Any]) -> Ghost:
        return Ghost()

    def __reduce__(self) -> Any:
        # Pickled as a standard-library callable that takes anything and returns None, so that a
        # saved model loads where hookline is not installed.
        return getattr, (nullcontext(), "__exit__")


class Ghost:
    """What a deep copy has in place of a tap: it takes itself out of the copy when first called."""

    def __call__(self, module: nn.Module, *rest: Any) -> None:
        for name in (PRE_HOOKS, POST_HOOKS):
            hooks = vars(module)[name]
            for number in [number for number, hook in hooks.items() if hook is self]:
                del hooks[number]

    def __reduce__(self) -> Any:
        return getattr, (nullcontext(), "__exit__")


def make_tap(fn: Callable[..., Any], label: Label, rank: Rank = Rank.OBSERVE) -> Tap:
    """A tap that calls `fn` with whatever torch hands over."""
    tap = Tap(fn)
    tap.label, tap.rank, tap.order = label, rank, next(_order)
    return tap


def place(wishes: list[Wish]) -> Callable[[], None]:
    """Puts a tap into a hook dictionary for each wish; returns what takes them all out again."""
    number = fresh_hook_id()
    entries: list[tuple[OrderedDict[int, Any], OrderedDict[int, bool], int]] = []

    def remove() -> None:
        for hooks, flags, key in entries:
            hooks.pop(key, None)
            flags.pop(key, None)
        entries.clear()

    try:
        for wish in wishes:
            state = vars(wish.module)
            hooks = state[POST_HOOKS if wish.after else PRE_HOOKS]
            flags = state[POST_WITH_KWARGS if wish.after else PRE_WITH_KWARGS]
            key = number if number not in hooks else fresh_hook_id()
            entries.append((hooks, flags, key))
            hooks[key] = make_tap(wish.fn, wish.label, wish.rank)
            if wish.kwargs:
                flags[key] = True
            if len(hooks) > 1:
                _sort(hooks, after=wish.after)
    except BaseException:
        remove()
        raise
    return remove


def _sort(hooks: OrderedDict[int, Any], *, after: bool) -> None:
    """Brings hookline's observing taps behind everything else, in the order that Rank describes.

    Edits and foreign hooks stay where they were registered. After the forward, observers run in
    reverse: each one undoes its own alias of the input, and aliases nest like brackets.
    """
    taps = [(number, tap) for number, tap in hooks.items() if type(tap) is Tap]
    for number, tap in taps:
        if tap.rank is Rank.ORIGINAL:
            hooks.move_to_end(number, last=False)
    late = [(number, tap) for number, tap in taps if tap.rank > Rank.EDIT]
    late.sort(key=lambda item: (item[1].rank, -item[1].order) if after else (-item[1].rank, item[1].order))
    for number, _ in late:
        hooks.move_to_end(number)


def taps_on(module: nn.Module) -> Iterator[Tap]:
    """Every tap on this module: of its calls, its parameters and its state dict."""
    for name, value in vars(module).items():
        if name.endswith("_hooks") and isinstance(value, dict):
            for hook in value.values():
                # torch wraps hooks on load_state_dict; the tap is inside.
                hook = getattr(hook, "hook", hook)
                if isinstance(hook, Tap):
                    yield hook
    forward = getattr(vars(module).get("forward"), "tap", None)
    if forward is not None:
        yield forward
    for parameter in module.parameters(recurse=False):
        yield from (hook for hook in tensor_hooks(parameter) if isinstance(hook, Tap))
