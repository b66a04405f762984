"""Classes: a tapped module is of a class of its own, so that compiled code notices the tap.

torch.compile does not look at hooks again once a graph is made: a hook that comes later is passed by, without a
word. It does look at the class of every module. So a tapped module becomes an instance of a subclass that is its
own, made for it and for the kind of taps on it, and gets its old class back with the last tap. Each class has a
graph; those that were compiled once are found again without compiling.
"""

from __future__ import annotations

import itertools
import weakref
from collections.abc import Hashable
from threading import get_ident
from typing import Any

from torch import nn

from hookline.backends.changing import changing
from hookline.backends.protocol import Tap
from hookline.backends.replaced_forward import ReplacedForward
from hookline.backends.subclass import base_of, subclass
from hookline.backends.torch.compat import hook_dicts

NUMBER = "_hookline_number"
DEEPEST_CALLS = 32
"""How many calls of one module may be under way within each other in a graph."""

Signature = tuple[Any, ...]

_numbers = itertools.count(1)
_marks: weakref.WeakKeyDictionary[nn.Module, Hashable] = weakref.WeakKeyDictionary()
_known: weakref.WeakKeyDictionary[nn.Module, dict[Signature, type]] = weakref.WeakKeyDictionary()
_tapped: weakref.WeakValueDictionary[int, Tapped] = weakref.WeakValueDictionary()


class Tapped:
    """A module with one kind of taps: which taps these are now."""

    def __init__(self, module: nn.Module) -> None:
        self.number = next(_numbers)
        self.module = weakref.ref(module)
        self.before: list[Tap] = []
        self.after: list[Tap] = []
        self.remembering: list[Any] = []  # doors, see there
        self._under_way: dict[int, list[dict[str, Any]]] = {}  # of each thread, the kwargs of calls in a graph
        self.remark = ""  # what its graph can't do, or does differently
        self.ran = False  # whether its graph ran

    def let_go(self) -> None:
        """The module is of another class now: taps hold it, and would keep it for ever."""
        self.before, self.after = [], []
        for door in self.remembering:
            door.latest = None

    def taps(self, after: bool) -> list[Tap]:
        return self.after if after else self.before

    def kwargs_of_call(self, kwargs: dict[str, Any], after: bool, index: int) -> dict[str, Any]:
        """`kwargs` in the dict that stands for the call under way in this thread, from its first tap to its last.

        A graph makes them anew for each tap; outside of graphs all taps of a call get the same dict, by which
        those after the forward know the call.
        """
        calls = self._under_way.setdefault(get_ident(), [])
        if not after and index == 0 and self.after:
            del calls[:-DEEPEST_CALLS]  # calls that failed leave theirs
            calls.append(kwargs)
        if not calls:
            return kwargs
        same = calls[-1]
        if same is not kwargs:
            same.clear()
            same.update(kwargs)
        if after and index == len(self.after) - 1:
            calls.pop()
        return same


def tapped(number: int) -> Tapped:
    """What is known of the class with this number."""
    return _tapped[number]


def module_of(kind: type) -> nn.Module | None:
    """The module whose class this is; None for any other class."""
    state: Tapped | None = vars(kind).get("_hookline_tapped")
    return None if state is None else state.module()


@changing
def remarks_on_compiled() -> list[tuple[nn.Module, str]]:
    """Modules of which graphs that ran since they got their taps can't do something, or do it differently."""
    found = []
    for module, kinds in _known.items():
        states: list[Tapped] = [vars(kind)["_hookline_tapped"] for kind in kinds.values()]
        if remark := next((state.remark for state in states if state.ran and state.remark), ""):
            found.append((module, remark))
    return found


@changing
def mark(module: nn.Module, key: Hashable) -> None:
    """Gives `module` the class that belongs to `key` as well as to its taps; None for the taps alone."""
    if key is None:
        _marks.pop(module, None)
    else:
        _marks[module] = key
    retarget(module)


@changing
def retarget(module: nn.Module) -> None:
    """Gives `module` the class that its taps need: one of its own, or its old one where there is no tap."""
    before, after = _taps(module, after=False), _taps(module, after=True)
    own = type(module)
    if own.__name__ == "OptimizedModule":  # its hooks run outside of the graph that it wraps
        return
    base = base_of(own)
    replaced = _replaced_forward(module)
    # The last of them may be its class no longer: torch changes that of a lazy module.
    for kind in _known.get(module, {}).values():
        vars(kind)["_hookline_tapped"].let_go()
    marked = _marks.get(module)
    if not before and not after and not replaced and marked is None:
        _become(module, base)
        return
    if NUMBER not in vars(own):  # what was said of earlier blocks
        for kind in _known.get(module, {}).values():
            vars(kind)["_hookline_tapped"].ran = False
    signature = (base, replaced, marked, *(_shape(tap) for tap in (*before, None, *after)))
    kinds = _known.setdefault(module, {})
    if signature not in kinds:
        kinds[signature] = _made(module, base)
    _become(module, kinds[signature])
    state: Tapped = kinds[signature]._hookline_tapped  # type: ignore[attr-defined]
    state.before, state.after = before, after
    for taps in (before, after):
        for index, tap in enumerate(taps):
            tap.index = index


def _replaced_forward(module: nn.Module) -> int:
    """The number of the forward that graphs follow in place of the module's own; 0 if there is none."""
    forward = getattr(module, "forward", None)
    while isinstance(forward, ReplacedForward) and not forward.followed:
        forward = forward.before
    return forward.number if isinstance(forward, ReplacedForward) else 0


def _taps(module: nn.Module, *, after: bool) -> list[Tap]:
    return [tap for tap in list(hook_dicts(module, after=after)[0].values()) if isinstance(tap, Tap)]


def _shape(tap: Tap | None) -> Any:
    """What of a tap a graph depends on."""
    return None if tap is None else (type(tap), tap.needs, tap.kwargs, tap.rank, tap.first_in_backward)


def _become(module: nn.Module, kind: type) -> None:
    if type(module) is not kind:
        try:
            module.__class__ = kind
        except TypeError:  # a class whose instances are laid out in C; such modules are not compiled
            return


def _made(module: nn.Module, base: type) -> type:
    state = Tapped(module)
    _tapped[state.number] = state
    made: type = subclass(base, {"_hookline_tapped": state, NUMBER: state.number})
    return made
