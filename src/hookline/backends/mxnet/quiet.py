"""Quiet: a block whose operators are no model's: those of hooks, and of hookline itself."""

from __future__ import annotations

import threading


class _Unseen(threading.local):
    """A context manager for one thread, to be entered as often as one likes."""

    depth = 0

    def __enter__(self) -> None:
        self.depth += 1

    def __exit__(self, *exception: object) -> None:
        self.depth -= 1


unseen = _Unseen()
