"""Failing: a forward that ends early inside of `ms.grad` leaves nothing behind.

MindSpore does not expect that a forward raises: it goes on believing that one is under way, and takes later calls
for a part of it; a cell that is differentiated itself keeps marks of that. A stopped recording and a hook that
raises would leave it so. While anything of hookline is placed, what runs such a forward cleans up after it.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from hookline.backends.mindspore import compat
from hookline.backends.patching import Patch
from hookline.backends.undoing import Undoing


def clean_after_failures(undoing: Undoing) -> None:
    """Has failed forwards cleaned up after."""
    _forwards.use(undoing, object())


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


_forwards: Patch[object] = Patch(compat.DIFFERENTIATED, _cleaning)
