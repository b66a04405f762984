"""Leaving: what is open when the process ends is closed, if nobody has done it by then.

A script that ends, `sys.exit`, an exception that nobody catches, a kernel that is restarted: all come by here.
`os._exit` and signals that kill do not.
"""

from __future__ import annotations

import atexit
import os
import sys
import weakref
from typing import Protocol

from hookline.reporting import warn


class Leaving(Protocol):
    """Something that has a last thing to do."""

    def at_exit(self) -> None:
        """The process ends, or a file of its own is all that is left of it."""


_waiting: weakref.WeakKeyDictionary[Leaving, int] = weakref.WeakKeyDictionary()
_is_over = False


def until_exit(thing: Leaving) -> None:
    """Has `thing.at_exit()` called when the process ends, those that came last first; not in a forked child."""
    if not _waiting:
        atexit.unregister(_leave)
        atexit.register(_leave)  # again, since what registers later is called sooner
    _waiting[thing] = os.getpid()


def no_longer(thing: Leaving) -> None:
    """It is done already."""
    _waiting.pop(thing, None)


def uncaught() -> BaseException | None:
    """What ends the process; None where it does not end, or by nothing that was raised."""
    # An interactive session goes on after what nobody caught.
    return getattr(sys, "last_value", None) if _is_over and not hasattr(sys, "ps1") else None


def _leave() -> None:
    global _is_over
    _is_over = True
    for thing, process in reversed(list(_waiting.items())):
        if process == os.getpid():
            try:
                thing.at_exit()
            except Exception as error:  # the others come after it
                message = f"{type(thing).__name__} failed at the end: {type(error).__name__}: {error}"
                warn(message, stacklevel=2)
    _waiting.clear()
