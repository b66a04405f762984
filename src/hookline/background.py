"""Background: rows handed to a thread that writes them, so that training never waits for a disk or a network."""

from __future__ import annotations

import os
import queue
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Generic, TypeVar

from hookline.errors import RunError
from hookline.leaving import until_exit
from hookline.rows import Row, Rows

QUEUE = 64
"""So many steps may wait to be written; then `full` decides."""
FULL = ("wait", "drop")
Some = TypeVar("Some", Rows, list[Row])
"""The rows of a step, in the form that `write` takes."""


class Background(Generic[Some]):
    """Calls `write(steps)` in a thread of its own, so many seconds after the first row came, or with so many rows.

    `steps` are the rows as they were put.

    When it can't keep up, `put` waits (`full="wait"`) or leaves rows out and counts them (`full="drop"`,
    see `dropped`). What `write` raises is kept in `error`; nothing is written after it. A forked process has no
    such thread: `put` raises RunError there.

    >>> written = []
    >>> background = Background(written.extend, seconds=60, rows=1000)
    >>> background.put([{"step": 0}, {"step": 0}]); background.put([{"step": 1}]); background.close()
    >>> written, background.error
    ([[{'step': 0}, {'step': 0}], [{'step': 1}]], None)
    """

    def __init__(
        self, write: Callable[[list[Some]], None], *, seconds: float, rows: int, full: str = "wait"
    ) -> None:
        self.dropped = 0
        self.error: Exception | None = None
        self.seconds = 0.0
        """The CPU time that its thread took so far."""
        self._write: Callable[[list[Some]], None] = write
        self._seconds, self._rows = seconds, rows
        self._waits = full == "wait"
        self._ends = False
        self._at_end: Callable[[], object] = lambda: None
        self._process = os.getpid()
        self._queue: queue.Queue[tuple[Some, bool] | None] = queue.Queue(QUEUE)
        self._thread = threading.Thread(target=self._work, name="hookline-sink", daemon=True)
        self._thread.start()

    @property
    def is_elsewhere(self) -> bool:
        """Whether its thread is that of another process, from which this one was forked."""
        return os.getpid() != self._process

    def put(self, rows: Some, *, at_once: bool = False) -> None:
        """Hands rows to the thread; `at_once`: nothing comes after them for a while, so they need not wait."""
        if self.is_elsewhere:
            raise RunError(
                "this process was forked while a run was written, which goes on in the process that began it. "
                "For a run of this process, begin another watch here"
            )
        try:
            self._queue.put((rows, at_once), block=self._waits)
        except queue.Full:
            self.dropped += len(rows)

    def close(self, at_end: Callable[[], object] = lambda: None) -> None:
        """Returns when all is written that was put, or has failed, and `at_end` was called.

        In its own thread, where the collector found the sink's owner dead, it returns at once: what is being
        written there goes on when it does.
        """
        if self._thread is threading.current_thread() and not self.is_elsewhere:
            self._at_end, self._ends = at_end, True
            until_exit(self)  # else the process may end before the thread does
            with suppress(queue.Full):  # then there is more to write, after which it ends
                self._queue.put_nowait(None)
            return
        if not self.is_elsewhere and self._thread.is_alive():
            self._queue.put(None)
            self._thread.join()
        at_end()

    def at_exit(self) -> None:
        """Waits until what closed itself is written."""
        self._thread.join()

    def _work(self) -> None:
        waiting: list[Some] = []
        due = 0.0
        more = True
        while more:
            try:
                got = self._queue.get(timeout=max(due - time.monotonic(), 0.0) if waiting else None)
            except queue.Empty:
                at_once = True
            else:
                more = got is not None
                due = due if waiting else time.monotonic() + self._seconds
                at_once = True
                if got is not None:
                    rows, at_once = got
                    waiting += [rows] if len(rows) else []
            if waiting and (at_once or sum(map(len, waiting)) >= self._rows or time.monotonic() >= due):
                if self.error is None:
                    try:
                        self._write(waiting)
                    except Exception as error:  # told in the training thread, by the sink
                        self.error = error
                waiting = []
                self.seconds = time.thread_time()
            if self._ends and self._queue.empty():
                more = False
        with suppress(Exception):  # nobody is there to be told
            self._at_end()
