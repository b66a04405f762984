"""Keywords: the kwargs of one call, followed through the taps that put others in their place.

A call's kwargs are a dict of its own, by which a tap after the forward knows the call that a tap before it saw.
A later tap may hand on another dict; then both stand for the call.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable
from typing import Any

from hookline.backends.nouns import Module, Tree


class Kwargs(list[Any]):
    """The dicts that stood for the kwargs of one call, in their order. Held by whoever waits for its end."""

    __slots__ = ("__weakref__",)


class _Thread(threading.local):
    """What is known of the latest call that a tap was told of."""

    latest: Callable[[], Kwargs | None] = staticmethod(lambda: None)


_thread = _Thread()


def following(fn: Callable[..., Any], module: Module, args: Tree, kwargs: Any) -> Any:
    """fn(module, args, kwargs) of a tap before the forward, whose result may have other kwargs."""
    new = fn(module, args, kwargs)
    if new is not None and new[1] is not kwargs:
        known = _thread.latest()
        if known is not None and known[-1] is kwargs:
            known.append(new[1])
    return new


def kwargs_of_call(came: Any, kwargs: Any) -> Kwargs:
    """All that stood for the kwargs of the call to which a tap `came` with these; `kwargs` are what goes on."""
    known = _thread.latest()
    if known is None or known[-1] is not came:
        known = Kwargs([came])
        _thread.latest = weakref.ref(known)
    if known[-1] is not kwargs:
        known.append(kwargs)
    return known
