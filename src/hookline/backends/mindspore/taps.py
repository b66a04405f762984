"""Taps in the hook dictionaries of cells, beside anybody else's hooks.

A cell has one entry of hookline's for each place among other people's hooks, a Dispatcher, which calls the taps.
MindSpore goes through the dictionary itself and fails when an entry is removed meanwhile; the taps of a dispatcher
may come and go at any time.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from hookline.backends.changing import changing
from hookline.backends.mindspore import compat
from hookline.backends.mindspore.constructs import refused
from hookline.backends.mindspore.failing import clean_after_failures
from hookline.backends.nouns import Module, Tree
from hookline.backends.tap import Placement, Rank, Tap, backwards_in_order, put_in_order
from hookline.backends.undoing import Undoing

KEYS = {"first": "hookline.first", "among": "hookline.among", "last": "hookline.last"}


class Dispatcher:
    """Calls the taps of one cell, one side of its forward and one place among other hooks.

    Where MindSpore compiles it, Unsupported is raised: compiled, a hook does nothing of what Python does in it.
    """

    after = False

    def __init__(self) -> None:
        self.taps: tuple[Tap, ...] = ()
        self.running = 0

    def __call__(self, cell: Module, *rest: Any) -> Any:
        if not self.taps:
            return None
        self.running += 1
        try:
            return self.run(cell, *rest)
        finally:
            self.running -= 1

    def run(self, cell: Module, *rest: Any) -> Any:
        raise NotImplementedError

    def __deepcopy__(self, memo: dict[int, Any]) -> Gone:
        return Gone()

    def __reduce__(self) -> Any:
        return Gone, ()


def _refuses_to_be_parsed(self: Dispatcher) -> Any:
    if self.taps:
        raise refused(self.taps[0].label.site)
    raise AttributeError(compat.PARSED)


setattr(Dispatcher, compat.PARSED, property(_refuses_to_be_parsed))


class Before(Dispatcher):
    """Taps before the forward: the result is None or (args, kwargs)."""

    def run(self, cell: Module, args: Tree, kwargs: Any) -> Any:
        changed = False
        for tap in self.taps:
            if tap.kwargs:
                new = tap(cell, args, kwargs)
                if new is not None:
                    (args, kwargs), changed = new, True
            elif (new := tap(cell, args)) is not None:
                args, changed = new, True
        return (args, kwargs) if changed else None


class After(Dispatcher):
    """Taps after the forward: the result is None or another output."""

    after = True

    def run(self, cell: Module, args: Tree, kwargs: Any, output: Tree) -> Any:
        before = output
        for tap in self.taps:
            new = tap(cell, args, kwargs, output) if tap.kwargs else tap(cell, args, output)
            if new is not None:
                output = new
        return None if output is before else output


class Gone:
    """What a copy of a cell has in place of a dispatcher; it may be compiled."""

    def __call__(self, cell, *rest):  # type: ignore[no-untyped-def]  # parsed by MindSpore, which reads no types
        return None


def attach(undoing: Undoing, placements: list[Placement]) -> None:
    """Puts a tap into a dispatcher of its cell for each placement."""
    placed: list[tuple[Any, str, Tap]] = []

    @changing
    def remove() -> None:
        # May be cut short and run again: each step can be done twice.
        for cell, key, tap in placed:
            _take_off(cell, key, tap)
        placed.clear()

    @changing
    def put(cell: Module, key: str, tap: Tap) -> None:
        dispatcher = _dispatcher(cell, tap.after, key)
        dispatcher.taps = _sorted((*dispatcher.taps, tap), after=tap.after)

    clean_after_failures(undoing)
    compat.forget_compiled(undoing)
    undoing.noted(remove)
    for cell, tap in placements:
        key = KEYS[_place_of(tap)]
        put_in_order(tap)
        placed.append((cell, key, tap))
        put(cell, key, tap)


def _place_of(tap: Tap) -> str:
    """Where among other people's hooks the tap runs."""
    if tap.rank is Rank.ORIGINAL or (tap.rank is Rank.EDIT and tap.prepended):
        return "first"
    return "among" if tap.rank is Rank.EDIT else "last"


def _dispatcher(cell: Module, after: bool, key: str) -> Dispatcher:
    """The cell's dispatcher of that place, put there if it has none."""
    hooks, with_kwargs = compat.hook_dicts(cell, after=after)
    if not isinstance(hooks.get(key), Dispatcher):
        hooks[key] = After() if after else Before()
        with_kwargs[key] = True
    if KEYS["last"] in hooks:
        hooks.move_to_end(KEYS["last"])
    if KEYS["first"] in hooks:
        hooks.move_to_end(KEYS["first"], last=False)
    found: Dispatcher = hooks[key]
    return found


def _take_off(cell: Module, key: str, tap: Tap) -> None:
    """Takes a tap off a cell, and with the last one the dispatcher."""
    dispatcher = compat.hook_dicts(cell, after=tap.after)[0].get(key)
    if not isinstance(dispatcher, Dispatcher):
        return
    dispatcher.taps = tuple(other for other in dispatcher.taps if other is not tap)
    if not dispatcher.taps:
        _take_out(cell, dispatcher, key)


def _take_out(cell: Module, dispatcher: Dispatcher, key: str) -> None:
    """Takes an empty dispatcher out, without disturbing who goes through the hooks at this moment."""
    hooks, with_kwargs = compat.hook_dicts(cell, after=dispatcher.after)
    if hooks.get(key) is not dispatcher:
        return
    if all(isinstance(hook, Dispatcher) for hook in hooks.values()):
        compat.set_hooks(
            cell, {other: hook for other, hook in hooks.items() if other != key}, after=dispatcher.after
        )
    elif dispatcher.running:
        return  # other people's handles know this dict; an empty dispatcher does nothing
    else:
        del hooks[key]
    with_kwargs.pop(key, None)


def _sorted(taps: tuple[Tap, ...], *, after: bool) -> tuple[Tap, ...]:
    """In the order that Rank describes; within one rank, in that of placement."""
    return tuple(sorted(taps, key=lambda tap: (tap.rank if after else -tap.rank, *backwards_in_order(tap))))


def taps_on(cell: Module) -> Iterator[Tap]:
    """Every tap on this cell."""
    for after in (False, True):
        for hook in compat.hook_dicts(cell, after=after)[0].values():
            if isinstance(hook, Dispatcher):
                yield from hook.taps
    yield from (hook for hook in compat.state_hooks(cell) if isinstance(hook, Tap))
    forward = getattr(vars(cell).get("construct"), "tap", None)
    if forward is not None:
        yield forward
    yield from ON_PARAMETERS.get(id(cell), ())


ON_PARAMETERS: dict[int, list[Tap]] = {}
"""Taps on the gradients of a cell's parameters, by the cell's id: MindSpore does not tell who listens."""
