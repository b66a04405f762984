"""Changing: the lock that is held while something is put on a model or taken off it.

Calls never wait for it: what they look at is changed by single steps, each of which leaves it right. It keeps
two threads that attach or detach from mixing up their steps.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from contextlib import ContextDecorator
from typing import Any, TypeVar

Fn = TypeVar("Fn", bound=Callable[..., Any])


class Alone:
    """Around a function: one thread at a time runs it; reentrant.

    As a decorator only. An interrupt may come between the last line of a `with` and its end, where it would leave
    the lock locked for ever. Here these lines are the standard library's, and what they call is written in C.
    """

    def __init__(self) -> None:
        lock = threading.RLock()
        self.acquire, self.release = lock.acquire, lock.release
        held = {"__enter__": lock.__enter__, "__exit__": lock.__exit__}
        self._around: Any = type("Held", (ContextDecorator,), held)()
        if hasattr(os, "register_at_fork"):
            # A child must not begin with a lock that a thread of its parent held, which it does not have.
            os.register_at_fork(before=self.acquire, after_in_parent=self.release, after_in_child=self.release)

    def __call__(self, fn: Fn) -> Fn:
        around: Fn = self._around(fn)
        return around


changing = Alone()
"""Reentrant: the collector may run somebody's undoing while something is being attached."""
