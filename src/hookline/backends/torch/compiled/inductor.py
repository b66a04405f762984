"""Inductor: its pass over finished graphs, in which op hooks are put while somebody listens."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from threading import Lock

from torch import fx

from hookline.backends.torch import compat

_lock = Lock()
_installed = ExitStack()
_users = 0


def install() -> Callable[[], None]:
    """Has graphs that are compiled from now on looked at; returns the undoing, which does nothing twice."""
    global _users
    with _lock:
        if _users == 0:
            _installed.callback(compat.inductor_pass(_look))
        _users += 1
    left = [1]

    def forget() -> None:
        global _users
        with _lock:
            if left:
                left.pop()
                _users -= 1
                if _users == 0:
                    _installed.close()

    return forget


def _look(graph: fx.Graph) -> None:
    from hookline.backends.torch.compiled.inserting import insert  # ophooks.py needs this file

    insert(graph)
