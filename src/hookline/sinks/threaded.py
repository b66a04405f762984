"""Threaded: what sinks share whose rows a thread of their own sends, so that training waits for no network."""

from __future__ import annotations

from typing import Any

from hookline.background import Background
from hookline.errors import RunError
from hookline.leaving import no_longer, until_exit
from hookline.rows import Row


class Threaded:
    """A sink whose `_send(rows)` runs in a thread; what it raises is told by the next `write`, or at the end."""

    _background: Background[list[Row]] | None = None

    def open(self, meta: dict[str, Any] | None = None) -> None:
        """Makes ready what rows are sent to, and calls `_begin`."""
        raise NotImplementedError

    def _send(self, rows: list[Row]) -> None:
        raise NotImplementedError

    def _error(self, error: Exception) -> RunError:
        """What is told of an error in the thread."""
        raise NotImplementedError

    def _end(self) -> None:
        """All is sent, or has failed."""

    def _begin(self, *, seconds: float, rows: int) -> None:
        self._background = Background(self._send_all, seconds=seconds, rows=rows)
        until_exit(self)

    def _send_all(self, steps: list[list[Row]]) -> None:
        self._send([row for rows in steps for row in rows])

    def write(self, rows: list[Row]) -> None:
        """Hands the rows to the thread; RunError once that has failed."""
        if self._background is None:
            self.open()
        assert self._background is not None
        self._tell(self._background.error)
        self._background.put(rows)

    def close(self) -> None:
        """Sends what is left; RunError if that failed."""
        background, self._background = self._background, None
        if background is None:
            return
        no_longer(self)
        background.close()
        self._end()
        self._tell(background.error)

    at_exit = close

    def _tell(self, error: Exception | None) -> None:
        if error is not None:
            raise self._error(error) from error
