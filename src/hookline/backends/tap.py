"""Tap: what hookline puts into a module, and in which order taps run. The same in every framework."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from enum import IntEnum, IntFlag
from typing import Any, NamedTuple


class Rank(IntEnum):
    """In which order taps of one module run, whatever the order in which they were placed.

    Before the forward: EDIT, OBSERVE, GRADIENT. After it: ORIGINAL, EDIT, GRADIENT, OBSERVE, STOP.
    So a recording sees values after every edit, a gradient belongs to the value that really crossed,
    and a forward is ended only when everybody has seen it.
    """

    ORIGINAL = -1
    EDIT = 0
    GRADIENT = 1
    OBSERVE = 2
    STOP = 3


class Reach(IntFlag):
    """What a tap takes of a call and may do to it. Compiled code is made to provide just that."""

    NOTHING = 0
    ARGUMENTS = 1
    OUTPUT = 2
    REPLACE = 4
    """It may return other arguments or another output."""
    GRADIENTS = 8
    """It hears the gradients of the arguments, or of the output if it runs after the forward."""
    JOINT = 16
    """These gradients come all at once, and it may replace them."""


class Label(NamedTuple):
    """Whose tap this is: what `installed` shows."""

    owner: str
    kind: str
    site: str
    placed_at: str = ""


class Tap:
    """What hookline puts into a module: called before or after its forward, labelled, never copied.

    `after` and `kwargs` say how it is called: (module, args[, kwargs]) before the forward, (module,
    args[, kwargs], output) after it. What it returns replaces (args, kwargs) or the output. In a deep
    copy of the model it is inert, and pickled it is a callable of the standard library, so that a
    saved model loads where hookline is not installed.
    """

    label: Label
    after = True
    kwargs = True
    rank = Rank.OBSERVE
    reach = Reach.ARGUMENTS | Reach.OUTPUT | Reach.REPLACE
    order = 0
    index = 0

    def __call__(self, *args: Any) -> Any:
        raise NotImplementedError

    def __deepcopy__(self, memo: dict[int, Any]) -> Inert:
        return Inert()

    def __reduce__(self) -> Any:
        return _inert_pickle()


class FunctionTap(Tap):
    """A tap that calls a function."""

    def __init__(
        self,
        fn: Callable[..., Any],
        label: Label,
        *,
        after: bool = True,
        kwargs: bool = True,
        rank: Rank = Rank.OBSERVE,
        reach: Reach = Tap.reach,
    ) -> None:
        self.fn = fn
        self.label, self.after, self.kwargs, self.rank, self.reach = label, after, kwargs, rank, reach

    def __call__(self, *args: Any) -> Any:
        return self.fn(*args)


class Inert:
    """What a copy has in place of a tap: called, it takes itself out of the copy's forward hooks."""

    def __call__(self, module: Any, *rest: Any) -> None:
        for name, hooks in vars(module).items():
            if name.startswith("_forward") and isinstance(hooks, dict):
                for number in [number for number, hook in hooks.items() if hook is self]:
                    del hooks[number]

    def __reduce__(self) -> Any:
        return _inert_pickle()


def _inert_pickle() -> Any:
    # nullcontext().__exit__ takes anything and returns None.
    return getattr, (nullcontext(), "__exit__")


class Wish(NamedTuple):
    """A tap to place, and on which module."""

    module: Any
    tap: Tap


Undo = Callable[[], None]
"""Takes back what was done; a second time does nothing."""
