"""Handing over: a step whose end nobody tells is handed to the disk after a moment of quiet.

Optimizers that step before the model is called again belong to one step, so its end is known with the next call
only. That may come late or never. Until then, what was seen of it is in the run; if more comes, it is written
again.
"""

from __future__ import annotations

import os
import threading
import time
import weakref
from contextlib import suppress
from typing import TYPE_CHECKING

from hookline.rows import Rows
from hookline.watching.numbers import rows_of_step

if TYPE_CHECKING:
    from hookline.watching.block import Watch

QUIET = 0.25
"""Seconds in which nothing was seen."""

_handing: weakref.WeakSet[Watch] = weakref.WeakSet()
_knows_of_forks = False


class Handing:
    """The thread that does it for one watch, until `end` or until the watch is gone."""

    def __init__(self, watch: Watch) -> None:
        self.seconds = 0.0
        """The CPU time that its thread took so far."""
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
            additions = one.gathered.additions + one.numbers.additions
            if additions == seen != offered and one.is_open and (one.gathered or one.numbers):
                offered = additions
                with suppress(Exception):  # a user's statistic: told when the step ends
                    rank = one.backend.rank()
                    parts = rows_of_step(one.gathered, one.numbers, one.now, rank, so_far=True)
                    one._table.offer(Rows.joined([part for part in parts if part is not None]))
            seen = additions
        with suppress(Exception):  # it is written at the end as well, and told if that fails
            note_wiring(one)
        if (handing := one._handing) is not None:
            handing.seconds = time.thread_time()
        del one, handing


def note_wiring(watch: Watch, *, at_end: bool = False) -> None:
    """Has the wiring kept in the run, if there is anything new."""
    with watch._stepping:
        news = watch._wired.news(at_once=at_end)
        budget = {} if watch.budget is None else {"budget": watch.budget.to_json()}
    if news is not None:
        watch._table.note({"wiring": news, **budget}, at_once=not at_end)


def _know_of_forks() -> None:
    """A forked child has its parent's locks, but not the threads that hold them."""
    global _knows_of_forks
    if not _knows_of_forks and hasattr(os, "register_at_fork"):
        _knows_of_forks = True
        os.register_at_fork(after_in_child=_forked)


def _forked() -> None:
    for watch in list(_handing):
        watch._stepping = threading.RLock()
        watch._wired.forked()
