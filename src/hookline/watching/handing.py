"""Handing over: a step whose end nobody tells is handed to the disk after a moment of quiet.

Optimizers that step before the model is called again belong to one step, so its end is known with the next call
only. That may come late or never. Until then, what was seen of it is in the run; if more comes, it is written
again.
"""

from __future__ import annotations

import os
import threading
import weakref
from contextlib import suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hookline.watching.block import Watch

QUIET = 0.25
"""Seconds in which nothing was seen."""

_handing: weakref.WeakSet[Watch] = weakref.WeakSet()
_knows_of_forks = False


class Handing:
    """The thread that does it for one watch, until `end` or until the watch is gone."""

    def __init__(self, watch: Watch) -> None:
        self._ended = threading.Event()
        self._process = os.getpid()
        self._thread = threading.Thread(
            target=_work, args=(weakref.ref(watch), self._ended), name="hookline-steps", daemon=True
        )
        _handing.add(watch)
        _know_of_forks()
        self._thread.start()

    def end(self) -> None:
        """It is over; what is handed over this moment still is."""
        self._ended.set()
        if self._thread is not threading.current_thread() and self._process == os.getpid():
            self._thread.join()


def _work(watch: weakref.ref[Watch], ended: threading.Event) -> None:
    seen = offered = 0
    while not ended.wait(QUIET) and (one := watch()) is not None:
        with one._stepping:
            additions = one.gathered.additions
            if additions == seen != offered and one.is_open and one.gathered:
                offered = additions
                with suppress(Exception):  # a user's statistic: told when the step ends
                    one._table.offer(one.gathered.rows_so_far(one.now, one.backend.rank()))
            seen = additions
        del one


def _know_of_forks() -> None:
    """A forked child has its parent's locks, but not the threads that hold them."""
    global _knows_of_forks
    if not _knows_of_forks and hasattr(os, "register_at_fork"):
        _knows_of_forks = True
        os.register_at_fork(after_in_child=_forked)


def _forked() -> None:
    for watch in list(_handing):
        watch._stepping = threading.RLock()
