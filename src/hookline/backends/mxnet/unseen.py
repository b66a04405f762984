"""Unseen: a block whose operators are no model's: those of hooks, and of hookline itself."""

from __future__ import annotations

import threading
from contextlib import ExitStack

from hookline.backends.undoing import stacked


class _Local(threading.local):
    is_quiet = False


_local = _Local()


def is_quiet() -> bool:
    """Whether this thread is in such a block."""
    return _local.is_quiet


@stacked
def unseen(stack: ExitStack) -> None:
    """A block for this thread; one may be in another."""
    stack.callback(setattr, _local, "is_quiet", _local.is_quiet)
    _local.is_quiet = True
