"""Table: the rows of a watch, the latest steps in memory and everything in the sinks."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

from hookline.errors import InvalidArgument
from hookline.globs import matcher
from hookline.reporting import warn
from hookline.rows import SCALAR, Curve, Row, Rows, Series
from hookline.sinks import RunStore, Sink
from hookline.watching.history import History


class Table:
    """Rows by step; it keeps the last `keep` steps that have any.

    >>> table = Table(keep=2, sinks=[])
    >>> for step in range(3):
    ...     row = {"site": "fc", "kind": "output", "step": step, "call": 0, "mode": "train", "rank": 0}
    ...     table.add(Rows.of([row]))
    >>> [row["step"] for row in table.rows()]
    [1, 2]
    """

    def __init__(self, keep: int, sinks: Iterable[Sink]) -> None:
        self.history = History(keep)
        self._numbers = History(keep)
        self._sinks = list(sinks)
        self._opened: list[Sink] = []
        self._offered: Rows | None = None

    @property
    def has_sinks(self) -> bool:
        """Whether rows go anywhere but to memory."""
        return bool(self._sinks)

    @property
    def revises(self) -> bool:
        """Whether a sink takes a step again that it has already, so that a step may be handed over early."""
        return any(getattr(sink, "revises", False) for sink in self._sinks)

    @property
    def first_step(self) -> int:
        """The step to begin with: 0, or where a run goes on."""
        return max([getattr(sink, "first_step", 0) for sink in self._sinks], default=0)

    @property
    def path(self) -> Path | None:
        """The folder of the run; None where none is kept."""
        return next((sink.path for sink in self._sinks if isinstance(sink, RunStore)), None)

    @property
    def seconds_elsewhere(self) -> float:
        """The CPU time that sinks took in threads of their own."""
        return float(sum(getattr(sink, "seconds", 0.0) for sink in self._sinks))

    def open(self, meta: dict[str, Any]) -> None:
        """Tells the sinks that want to know what kind of run begins; where one can't, none is left open."""
        self._opened = []
        try:
            for sink in self._sinks:
                if hasattr(sink, "open"):
                    sink.open(meta)
                self._opened.append(sink)
        except Exception:
            for sink in self._opened:
                with suppress(Exception):  # the first error is the one to be told
                    sink.close()
            self._opened = []
            raise

    def offer(self, rows: Rows) -> None:
        """Takes what is known of a step that may not be over, for the sinks that will take it again."""
        self._offered = rows
        self._hand([sink for sink in self._sinks if getattr(sink, "revises", False)], rows, at_once=True)

    def add(self, *parts: Rows) -> None:
        """Takes the rows of a finished step; a sink that fails is reported once and left out.

        Those of one part are of tensors, or all scalars.
        """
        parts = tuple(part for part in parts if len(part))
        if not parts:
            return
        for part in parts:
            (self._numbers if part.series[0][1] == SCALAR else self.history).add(part)
        rows = Rows.joined(parts) if self._sinks else parts[0]
        offered, self._offered = self._offered, None
        # What was offered and is the same still need not be written twice.
        is_known = rows.is_same(offered)
        self._hand([sink for sink in self._sinks if not (is_known and getattr(sink, "revises", False))], rows)

    def _hand(self, sinks: list[Sink], rows: Rows, **how: bool) -> None:
        for sink in sinks:
            try:
                sink.write(rows if getattr(sink, "takes_columns", False) else list(rows), **how)
            except Exception as error:  # training goes on, and so do the other sinks
                self._sinks.remove(sink)
                self._opened.remove(sink)
                with suppress(Exception):  # it has failed already, which is told below
                    sink.close()
                warn(f"{type(sink).__name__} failed and gets no more rows: {error}", stacklevel=2)

    def keep(self, recording: Any, step: int) -> None:
        """Hands a recording to the sinks that keep such; InvalidArgument where there is none."""
        keepers = [sink for sink in self._sinks if hasattr(sink, "keep")]
        if not keepers:
            raise InvalidArgument("this watch keeps no run: give watch(..., to=folder), then record(..., to=w).")
        for sink in keepers:
            sink.keep(recording, step)

    def rows(self, site: str | None = None, kind: str | None = None, step: int | None = None) -> list[Row]:
        """The rows in memory, those of a site (a name or glob), a kind or a step only; scalars by their kind."""
        matches = None if site is None else matcher(site)
        found: list[Row] = []
        for rows in self._numbers if kind == SCALAR else self.history:
            places = [
                place
                for place, (one, other, _, _) in enumerate(rows.series)
                if (matches is None or matches(one)) and (kind is None or other == kind)
            ]
            found += (row for row in rows.at(places) if step is None or row["step"] == step)
        return found

    def curves(self) -> dict[Series, Curve]:
        """The series in memory, each with its statistics over the steps; scalars are among them."""
        steps = [*self.history, *self._numbers]
        return Rows.joined(steps).curves() if steps else {}

    def note(self, facts: dict[str, Any], *, at_once: bool = False) -> None:
        """Has what is known of the run kept in it: at its end, or now."""
        for sink in list(self._sinks):
            if isinstance(sink, RunStore):
                sink.note(facts, at_once=at_once)

    def close(self) -> None:
        """Tells the sinks that nothing more comes; a second time those that the first did not come to."""
        while self._opened:
            sink = self._opened[0]
            try:
                sink.close()
            except Exception as error:  # what was trained must not be lost for it
                warn(f"{type(sink).__name__} failed at the end: {error}", stacklevel=2)
            self._opened.remove(sink)
