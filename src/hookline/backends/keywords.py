"""Keywords: the kwargs of one call, followed through the taps that put others in their place.

A call's kwargs are a dict of its own, by which a tap after the forward knows the call that a tap before it saw.
A later tap may hand on another dict; then both stand for the call.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from hookline.backends.nouns import Module, Tree

HAS_C = find_spec("hookline.backends._under_way") is not None
"""Whether there was a compiler when hookline was installed; then `_under_way.c` follows calls."""


class Kwargs(list[Any]):
    """The dicts that stood for the kwargs of one call, in their order. Held by whoever waits for its end."""

    __slots__ = ("__weakref__",)


class Following:
    """What a thread knows of the latest calls that taps were told of."""

    __slots__ = ("call", "latest", "number", "taps", "thread")

    def __init__(self) -> None:
        self.thread = threading.get_ident()
        self.latest: Callable[[], Kwargs | None] = weakref.ref(Kwargs())
        """What stood for the kwargs of the latest call."""
        self.call: tuple[int, ...] = ()
        self.taps: tuple[int, ...] = ()
        self.number = 0
        """The call that taps after the forward came from last, which of them did, and its number."""


class _Local(threading.local):
    def __init__(self) -> None:
        self.now = Following()


here = _Local()


def handed_on_by_python(came: Any, kwargs: Any) -> None:
    """Has `kwargs` stand for the calls that `came` stood for."""
    known = here.now.latest()
    if known is not None and known[-1] is came:
        known.append(kwargs)


if TYPE_CHECKING or HAS_C:
    from hookline.backends._under_way import handed_on
else:
    handed_on = handed_on_by_python


def following(fn: Callable[..., Any], module: Module, args: Tree, kwargs: Any) -> Any:
    """fn(module, args, kwargs) of a tap before the forward, whose result may have other kwargs."""
    new = fn(module, args, kwargs)
    if new is not None and new[1] is not kwargs:
        handed_on(kwargs, new[1])
    return new
