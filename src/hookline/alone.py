"""Alone: locks that are held around a function, and let go of also where an interrupt comes.

A `with` inside of a function is not enough: an interrupt may come between the last line of the block and its end,
where it would leave the lock locked for ever. Here these lines are the standard library's, and what they call is
written in C.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from contextlib import ContextDecorator
from functools import wraps
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar

Fn = TypeVar("Fn", bound=Callable[..., Any])
P = ParamSpec("P")
T = TypeVar("T")


class Alone:
    """Around a function: one thread at a time runs it; reentrant.

    One that lives as long as the process takes care of forks: a child must not begin with a lock that a thread of
    its parent held, which it does not have.
    """

    def __init__(self, *, lasting: bool = True) -> None:
        lock = threading.RLock()
        self.acquire, self.release = lock.acquire, lock.release
        held = {"__enter__": lock.__enter__, "__exit__": lock.__exit__}
        self._around: Any = type("Held", (ContextDecorator,), held)()
        if lasting and hasattr(os, "register_at_fork"):
            os.register_at_fork(before=self.acquire, after_in_parent=self.release, after_in_child=self.release)

    def __call__(self, fn: Fn) -> Fn:
        around: Fn = self._around(fn)
        return around


class HasAlone(Protocol):
    """Something with a lock of its own."""

    _alone: Alone


S = TypeVar("S", bound=HasAlone)


def one_at_a_time(method: Callable[Concatenate[S, P], T]) -> Callable[Concatenate[S, P], T]:
    """A method that one thread at a time runs, of those of one object; `_alone` is the object's lock."""

    @wraps(method)
    def around(self: S, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return self._alone(method)(self, *args, **kwargs)

    return around
