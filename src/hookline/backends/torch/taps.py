"""Taps in the hook dictionaries of torch modules, where torch's own hooks are: beside anybody else's.

Other threads may be calling the modules meanwhile. A call takes a copy of the dictionary in one step, and then
looks up for each hook of it whether that takes kwargs. So every change here is a single step (an entry put,
moved, popped) that leaves the dictionary right, the note that a tap takes kwargs is there before the tap is, and
a tap that is called without them was taken off during the call (`Tap.whole_calls_only`).
"""

from __future__ import annotations

import weakref
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from typing import Any, NamedTuple

from torch import nn

from hookline.backends.changing import changing
from hookline.backends.hook_point import Point
from hookline.backends.protocol import FunctionTap, Inert, Label, Placement, Rank, Tap
from hookline.backends.replaced_forward import ReplacedForward, replaced
from hookline.backends.tap import order_numbers
from hookline.backends.torch.attached import Attached, attached
from hookline.backends.torch.compat import (
    HOOKS_AFTER,
    HOOKS_BEFORE,
    KWARGS_AFTER,
    KWARGS_BEFORE,
    always_called,
    before_registering,
    beware_of_compiling,
    compiled,
    fresh_hook_id,
    hook_dicts,
    never_compiled,
    tensor_hooks,
    traced_instead,
    was_compiled,
)
from hookline.backends.torch.compiled.classes import retarget
from hookline.backends.torch.compiled.constants import need_version
from hookline.backends.torch.compiled.traced import call_of_inert, call_of_point, call_of_replaced, call_of_tap
from hookline.backends.torch.entries import Entries, Held
from hookline.backends.undoing import Undoing

Put = Callable[[nn.Module, Tap], "OrderedDict[int, Any] | None"]
_traceable: set[type] = set()
beware_of_compiling()
traced_instead(Inert.__call__, call_of_inert)
traced_instead(Point.__call__, call_of_point)
traced_instead(ReplacedForward.__call__, call_of_replaced)


def replace_forward(undoing: Undoing, module: nn.Module, fn: Callable[..., Any], label: Label) -> None:
    """Has `fn(original_forward, *args, **kwargs)` run in place of the forward."""
    held = weakref.ref(module)

    def retarget_it() -> None:
        if was_compiled() and (module := held()) is not None:
            retarget(module)

    undoing.noted(retarget_it)
    replaced(undoing, "forward", module, fn, label)
    retarget_it()


def attach(undoing: Undoing, placements: list[Placement]) -> None:
    """Puts a tap into a hook dictionary for each placement.

    What is noted for the undoing keeps no module alive, and nothing that hangs on one.
    """
    if was_compiled() and any(compiled(module) for module, _ in placements):
        need_version()
    placed = _Placed()
    undoing.noted(placed.remove)
    placed.put(placements)


class _Way(NamedTuple):
    """How a tap is called, and so where its entries are.

    Taps of a class that is `alike` are all called in one way, none is a FunctionTap, and none is `always` called
    or comes `first`.
    """

    after: bool
    kwargs: bool
    always: bool
    first: bool

    def entries(self, key: int, held: Held) -> Entries:
        """For taps of this kind, under that number; `held` gets their modules."""
        names = (HOOKS_AFTER, KWARGS_AFTER) if self.after else (HOOKS_BEFORE, KWARGS_BEFORE)
        return Entries(names[0], names[1] if self.kwargs else None, key, order_numbers, held)


class _Placed:
    """The entries of one attachment in hook dictionaries."""

    def __init__(self) -> None:
        self._attached = Attached()
        self._entries: dict[tuple[_Way, int], Entries] = {}
        self._is_there = False

    @changing
    def put(self, placements: list[Placement]) -> None:
        number = fresh_hook_id()
        self._is_there = True
        before_registering(_make_room)
        if placements:
            placements[0].tap.attached = self._attached  # type: ignore[attr-defined]
            attached.add(self._attached)
        for kind in {type(tap) for _, tap in placements}:
            if kind not in _traceable:
                _make_traceable(kind)
        quick: dict[type, tuple[Put, bool]] = {}
        for module, tap in placements:
            if (known := quick.get(type(tap))) is not None and (hooks := known[0](module, tap)) is not None:
                if len(hooks) > 1:
                    _sort(hooks, after=known[1])
                continue
            entries, way = self._put_anyhow(module, tap, number)
            if tap.alike:
                quick[type(tap)] = entries.put, way.after
        if was_compiled():
            _retarget(self._attached.modules())

    def _put_anyhow(self, module: nn.Module, tap: Tap, number: int) -> tuple[Entries, _Way]:
        """Puts a tap of any kind, under this number if that is free."""
        way = _Way(tap.after, tap.kwargs, tap.always_called, tap.prepended)
        key = number if number not in hook_dicts(module, way.after)[0] else fresh_hook_id()
        entries = self._under(way, key)
        if isinstance(tap, FunctionTap):
            tap.count = 2 + way.kwargs + way.after
        if way.always:
            entries.held.append(weakref.ref(module))
            always_called(module)[key] = True
        hooks = entries.put(module, tap)
        assert hooks is not None
        if way.first:
            tap.order = -tap.order
            hooks.move_to_end(key, last=False)
        if len(hooks) > 1:
            _sort(hooks, after=way.after)
        return entries, way

    def _under(self, way: _Way, key: int) -> Entries:
        if (known := self._entries.get((way, key))) is None:
            held: Held = []
            self._attached.held.append(held)
            known = self._entries[way, key] = way.entries(key, held)
        return known

    @changing
    def remove(self) -> None:
        if not self._is_there:
            return
        for (way, key), entries in self._entries.items():
            entries.remove()
            for held in entries.held if way.always else ():
                if (module := held()) is not None:
                    always_called(module).pop(key, None)
        attached.discard(self._attached)
        if not attached:
            before_registering(None)
        if was_compiled():
            _retarget(self._attached.modules())
        self._entries.clear()
        self._is_there = False


def _retarget(modules: Iterable[nn.Module]) -> None:
    for module in modules:
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
    found = list(hooks.items())
    taps = [(number, tap) for number, tap in found if isinstance(tap, Tap)]
    originals = [(tap.order, number) for number, tap in taps if tap.rank is Rank.ORIGINAL]
    first = [number for _, number in sorted(originals)]
    late = [(tap.rank if after else -tap.rank, tap.order, number) for number, tap in taps if tap.rank > Rank.EDIT]
    last = [number for *_, number in sorted(late)]
    with suppress(KeyError):  # somebody emptied the dictionary
        if first != [number for number, _ in found[: len(first)]]:
            for number in reversed(first):
                hooks.move_to_end(number, last=False)
        if last != [number for number, _ in found[len(found) - len(last) :]]:
            for number in last:
                hooks.move_to_end(number)


def _make_room(hooks: Any, number: int) -> None:
    """Has the hook that somebody is about to register come before hookline's later taps.

    A recording keeps what leaves a module, also where it is open when a hook comes that replaces that.
    """
    if type(hooks) is not OrderedDict or not hooks:
        return
    last = next(iter(reversed(list(hooks.values()))), None)  # another thread may have emptied it
    if isinstance(last, Tap) and last.rank > Rank.EDIT:
        _put_before_taps(hooks, number, last.after)


@changing
def _put_before_taps(hooks: OrderedDict[int, Any], number: int, after: bool) -> None:
    hooks[number] = _nothing_yet  # what is put under this number next takes its place, and stays there
    _sort(hooks, after=after)


def _nothing_yet(*told: Any) -> None:
    """Stands where a hook will be in a moment."""


def taps_on(module: nn.Module) -> Iterator[Tap]:
    """Every tap on this module: of its calls, its parameters and its state dict."""
    for name, value in list(vars(module).items()):
        if name.endswith("_hooks") and isinstance(value, dict):
            for hook in list(value.values()):
                if not isinstance(hook, Tap):
                    hook = getattr(hook, "hook", None)  # torch wraps hooks on load_state_dict
                if isinstance(hook, Tap):
                    yield hook
    forward = vars(module).get("forward")
    while isinstance(forward, ReplacedForward):
        if forward.number:
            yield forward.tap
        forward = forward.before
    for parameter in module.parameters(recurse=False):
        yield from (hook for hook in tensor_hooks(parameter) if isinstance(hook, Tap))
