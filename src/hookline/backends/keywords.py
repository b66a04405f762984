"""Keywords: the kwargs of one call, followed through the taps that put others in their place.

A call's kwargs are a dict of its own, by which a tap after the forward knows the call that a tap before it saw.
A later tap may hand on another dict; then both stand for the call.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable
from typing import Any


class Kwargs(list[Any]):
    """The dicts that stood for the kwargs of one call, in their order. Held by whoever waits for its end."""

    __slots__ = ("__weakref__",)


class _Thread(threading.local):
    """The call that a tap is being told of, and what is known of the latest such call."""

    came: Any = None
    latest: Callable[[], Kwargs | None] = staticmethod(lambda: None)


_thread = _Thread()


def following(fn: Callable[..., Any], module: Any, args: Any, kwargs: Any) -> Any:
    """fn(module, args, kwargs) of a tap before the forward, whose result may have other kwargs."""
    before = _thread.came
    try:
        try:
            _thread.came = kwargs
            new = fn(module, args, kwargs)
        finally:
            _thread.came = before
    finally:  # twice: an interrupt may come at the line above
        _thread.came = before
    if new is not None and new[1] is not kwargs:
        known = _thread.latest()
        if known is not None and known[-1] is kwargs:
            known.append(new[1])
    return new


def kwargs_of_call(kwargs: Any) -> Kwargs:
    """All that stood for the kwargs of the call that is being told; `kwargs` are what goes on."""
    known, came = _thread.latest(), _thread.came
    if known is None or came is None or known[-1] is not came:
        known = Kwargs() if came is None else Kwargs([came])
        _thread.latest = weakref.ref(known)
    if not known or known[-1] is not kwargs:
        known.append(kwargs)
    return known
