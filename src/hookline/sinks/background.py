"""Background: rows handed to a thread that writes them, so that training never waits for a disk or a network."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable

from hookline.sinks.frames import Row

QUEUE = 64
"""So many steps may wait to be written; then `full` decides."""
FULL = ("wait", "drop")


class Background:
    """Calls `write(rows)` in a thread of its own, after so many seconds or rows, whichever is first.

    When it can't keep up, `put` waits (`full="wait"`) or leaves rows out and counts them (`full="drop"`,
    see `dropped`). What `write` raises is kept in `error`; nothing is written after it.

    >>> written = []
    >>> background = Background(written.extend, seconds=60, rows=1000)
    >>> background.put([{"step": 0}, {"step": 1}]); background.close()
    >>> len(written), background.error
    (2, None)
    """

    def __init__(
        self, write: Callable[[list[Row]], None], *, seconds: float, rows: int, full: str = "wait"
    ) -> None:
        self.dropped = 0
        self.error: Exception | None = None
        self._write, self._seconds, self._rows = write, seconds, rows
        self._waits = full == "wait"
        self._queue: queue.Queue[list[Row] | None] = queue.Queue(QUEUE)
        self._thread = threading.Thread(target=self._work, name="hookline-sink", daemon=True)
        self._thread.start()

    def put(self, rows: list[Row]) -> None:
        """Hands rows to the thread."""
        try:
            self._queue.put(rows, block=self._waits)
        except queue.Full:
            self.dropped += len(rows)

    def close(self) -> None:
        """Returns when all is written that was put, or has failed."""
        if self._thread.is_alive():
            self._queue.put(None)
            self._thread.join()

    def _work(self) -> None:
        waiting: list[Row] = []
        last = time.monotonic()
        more = True
        while more:
            try:
                got = self._queue.get(timeout=self._seconds)
                more = got is not None
                waiting += got or []
            except queue.Empty:
                pass
            due = time.monotonic() - last >= self._seconds or len(waiting) >= self._rows or not more
            if waiting and due and self.error is None:
                try:
                    self._write(waiting)
                except Exception as error:  # told in the training thread, by the sink
                    self.error = error
            if due:
                waiting, last = [], time.monotonic()
