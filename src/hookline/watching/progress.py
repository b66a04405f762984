"""Progress: one line in the terminal that tells how far a watch is. Off where it would hurt."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import Any

from hookline.reporting import report

SECONDS = 0.25
"""The line changes no more often than this."""


class Progress:
    """A line on standard error with the step and the number of rows; nothing in a pipe or a notebook.

    >>> progress = Progress(wanted=False)
    >>> progress.tell(3, 120); progress.close()
    """

    def __init__(self, wanted: bool | None = None) -> None:
        self._status: Any = None
        self._told = 0.0
        self._rows = 0
        if in_terminal() if wanted is None else wanted:
            from rich.console import Console

            self._status = Console(stderr=True).status("watching", spinner="dots")
            self._status.start()

    def tell(self, step: int, rows: int) -> None:
        """A step has ended, with so many rows."""
        self._rows += rows
        now = time.monotonic()
        if self._status is not None and now - self._told >= SECONDS:
            self._told = now
            self._attempt(self._status.update, f"watching: step {step:,}, {self._rows:,} rows")

    def close(self) -> None:
        """Takes the line away; a second time does nothing."""
        if self._status is not None:
            self._attempt(self._status.stop)
            self._status = None

    def _attempt(self, show: Callable[..., None], *args: Any) -> None:
        try:
            show(*args)
        except Exception as error:  # a terminal that went away, say: training goes on
            self._status = None
            report("watch(progress=...)", show, error, "the line with the step is not shown any more")


def in_terminal() -> bool:
    """Whether somebody watches a terminal that is not a notebook's."""
    return sys.stderr.isatty() and "ipykernel" not in sys.modules
