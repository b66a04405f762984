"""Failing: a forward that ends early inside of `ms.grad` leaves nothing behind.

MindSpore does not expect that a forward raises: it goes on believing that one is under way, and takes later calls
for a part of it; a cell that is differentiated itself keeps marks of that. A stopped recording and a hook that
raises would leave it so. While anything of hookline is placed, what runs such a forward cleans up after it.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from hookline.backends.changing import changing
from hookline.backends.mindspore import compat
from hookline.backends.undoing import Undoing

_placed: list[object] = []
_originals: list[Callable[..., Any]] = []


def clean_after_failures(undoing: Undoing) -> None:
    """Has failed forwards cleaned up after."""
    mine = object()
    undoing.noted(_remove, mine)
    _add(mine)


@changing
def _add(mine: object) -> None:
    _placed.append(mine)
    if not _originals:
        _originals.extend([getattr(owner, name) for owner, name in compat.DIFFERENTIATED])
        for (owner, name), original in zip(compat.DIFFERENTIATED, _originals, strict=True):
            setattr(owner, name, _cleaning(original))


@changing
def _remove(mine: object) -> None:
    _placed[:] = [other for other in _placed if other is not mine]
    if not _placed:
        for (owner, name), original in zip(compat.DIFFERENTIATED, _originals, strict=False):
            setattr(owner, name, original)
        _originals.clear()


def _cleaning(run: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(run)
    def cleaned(forward: Any, *args: Any, **kwargs: Any) -> Any:
        state = compat.differentiation(forward)
        try:
            return run(forward, *args, **kwargs)
        except BaseException:
            compat.set_differentiation(forward, state)
            raise

    return cleaned
