"""Unseen: blocks whose operators are no model's."""

from __future__ import annotations

import threading
from contextlib import ExitStack

from hookline.backends.undoing import stacked

unseen_threads: dict[object, int] = {}


@stacked
def unseen(stack: ExitStack) -> None:
    """A context in which what runs is no operator of the model: hookline's own work, or a user's for it."""
    here = object()
    stack.callback(unseen_threads.pop, here, None)
    unseen_threads[here] = threading.get_ident()


def is_unseen() -> bool:
    """Whether this thread is in such a context."""
    return threading.get_ident() in list(unseen_threads.values())
