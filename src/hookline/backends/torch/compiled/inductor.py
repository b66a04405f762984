"""Inductor: its pass over finished graphs, in which op hooks are put while somebody listens."""

from __future__ import annotations

from torch import fx

from hookline.backends.changing import changing
from hookline.backends.torch import compat
from hookline.backends.undoing import Undoing

_installed = Undoing()
_users: list[object] = []


def install(undoing: Undoing) -> None:
    """Has graphs that are compiled from now on looked at."""
    user = object()
    undoing.noted(_use, user, False)
    _use(user, True)


@changing
def _use(user: object, wanted: bool) -> None:
    _users[:] = [other for other in _users if other is not user] + [user] * wanted
    if not _users:
        _installed.close()
    elif wanted and len(_users) == 1:
        compat.inductor_pass(_installed, _look)


def _look(graph: fx.Graph) -> None:
    from hookline.backends.torch.compiled.inserting import insert  # ophooks.py needs this file

    insert(graph)
