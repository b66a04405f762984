"""Unseen: blocks whose operators are no model's, or whose backwards are of no loss."""

from __future__ import annotations

import threading
from contextlib import ExitStack

from hookline.backends.undoing import stacked

unseen_threads: dict[object, int] = {}
_unheard_threads: dict[object, int] = {}


@stacked
def unseen(stack: ExitStack) -> None:
    """A context in which what runs is no operator of the model: hookline's own work, or a user's for it."""
    here = object()
    stack.callback(unseen_threads.pop, here, None)
    unseen_threads[here] = threading.get_ident()


def is_unseen() -> bool:
    """Whether this thread is in such a context."""
    return threading.get_ident() in list(unseen_threads.values())


@stacked
def unheard(stack: ExitStack) -> None:
    """A context in which a backward is of no loss: a call is made again to look at it."""
    here = object()
    stack.callback(_unheard_threads.pop, here, None)
    _unheard_threads[here] = threading.get_ident()


def is_unheard() -> bool:
    """Whether this thread is in such a context."""
    return threading.get_ident() in list(_unheard_threads.values())
