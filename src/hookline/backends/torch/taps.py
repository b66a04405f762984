"""Taps in the hook dictionaries of torch modules, where torch's own hooks are: beside anybody else's."""

from __future__ import annotations

import weakref
from collections import OrderedDict
from collections.abc import Callable, Iterator
from typing import Any

from torch import nn

from hookline.backends.forwards import ReplacedForward, replaced
from hookline.backends.points import Point
from hookline.backends.protocol import Inert, Label, Rank, Tap, Wish
from hookline.backends.tap import put_in_order
from hookline.backends.torch.compat import (
    always_called,
    fresh_hook_id,
    hook_dicts,
    never_compiled,
    tensor_hooks,
    traced_instead,
    was_compiled,
)
from hookline.backends.torch.compiled.classes import retarget
from hookline.backends.torch.compiled.traced import call_of_inert, call_of_point, call_of_replaced, call_of_tap

_attached: weakref.WeakSet[Attached] = weakref.WeakSet()
_traceable: set[type] = set()
traced_instead(Inert.__call__, call_of_inert)
traced_instead(Point.__call__, call_of_point)
traced_instead(ReplacedForward.__call__, call_of_replaced)


class Attached:
    """The wishes of one attachment, held by its first tap: found as long as the modules are there."""

    def __init__(self, wishes: list[Wish]) -> None:
        self.wishes = wishes


def replace_forward(module: nn.Module, fn: Callable[..., Any], label: Label) -> Callable[[], None]:
    """Has `fn(original_forward, *args, **kwargs)` run in place of the forward; returns the undoing."""
    restore = replaced("forward", module, fn, label)
    if was_compiled():
        retarget(module)

    def undo() -> None:
        restore()
        if was_compiled():
            retarget(module)

    return undo


def tapped_modules() -> list[nn.Module]:
    """Every module that has a tap now."""
    found = {id(module): module for attached in list(_attached) for module, _ in attached.wishes}
    return list(found.values())


def place(wishes: list[Wish]) -> Callable[[], None]:
    """Puts a tap into a hook dictionary for each wish; returns what takes them all out again."""
    number = fresh_hook_id()
    attached = Attached(wishes)
    entries: list[tuple[OrderedDict[int, Any], OrderedDict[int, bool], int]] = []
    always: list[tuple[OrderedDict[int, bool], int]] = []

    def remove() -> None:
        for hooks, flags, key in entries:
            hooks.pop(key, None)
            flags.pop(key, None)
        for flags, key in always:
            flags.pop(key, None)
        entries.clear()
        always.clear()
        _attached.discard(attached)
        if was_compiled():
            _retarget(attached.wishes)
        attached.wishes = []

    try:
        for module, tap in wishes:
            hooks, flags = hook_dicts(module, after=tap.after)
            key = number if number not in hooks else fresh_hook_id()
            entries.append((hooks, flags, key))
            put_in_order(tap)
            if tap.always_called:
                always.append((always_called(module), key))
                always_called(module)[key] = True
            hooks[key] = tap
            if tap.prepended:
                hooks.move_to_end(key, last=False)
            if tap.kwargs:
                flags[key] = True
            if len(hooks) > 1:
                _sort(hooks, after=tap.after)
            if type(tap) not in _traceable:
                _make_traceable(type(tap))
        if wishes:
            wishes[0].tap.attached = attached  # type: ignore[attr-defined]
            _attached.add(attached)
        if was_compiled():
            _retarget(wishes)
    except BaseException:
        remove()
        raise
    return remove


def _retarget(wishes: list[Wish]) -> None:
    for module in {id(module): module for module, _ in wishes}.values():
        retarget(module)


def _make_traceable(kind: type[Tap]) -> None:
    if not kind.followed:
        never_compiled(kind.__call__)
        traced_instead(kind.__call__, call_of_tap)
    _traceable.add(kind)


def _sort(hooks: OrderedDict[int, Any], *, after: bool) -> None:
    """Brings hookline's later taps behind everything else, in the order that Rank describes.

    Edits and foreign hooks stay where they were registered; within one rank, so does everything.
    """
    taps = [(number, tap) for number, tap in hooks.items() if isinstance(tap, Tap)]
    first = [(number, tap) for number, tap in taps if tap.rank is Rank.ORIGINAL]
    for number, _ in sorted(first, key=lambda item: item[1].order, reverse=True):
        hooks.move_to_end(number, last=False)
    late = [(number, tap) for number, tap in taps if tap.rank > Rank.EDIT]
    late.sort(key=lambda item: (item[1].rank if after else -item[1].rank, item[1].order))
    for number, _ in late:
        hooks.move_to_end(number)


def taps_on(module: nn.Module) -> Iterator[Tap]:
    """Every tap on this module: of its calls, its parameters and its state dict."""
    for name, value in vars(module).items():
        if name.endswith("_hooks") and isinstance(value, dict):
            for hook in value.values():
                if not isinstance(hook, Tap):
                    hook = getattr(hook, "hook", None)  # torch wraps hooks on load_state_dict
                if isinstance(hook, Tap):
                    yield hook
    forward = vars(module).get("forward")
    while isinstance(forward, ReplacedForward):
        yield forward.tap
        forward = forward.before
    for parameter in module.parameters(recurse=False):
        yield from (hook for hook in tensor_hooks(parameter) if isinstance(hook, Tap))
