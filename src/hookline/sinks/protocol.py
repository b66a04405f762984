"""Sink: what anything must have that rows go to."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Protocol

from hookline.errors import InvalidArgument
from hookline.runfiles.store import RunStore
from hookline.sinks.parquet import Parquet


class Sink(Protocol):
    """Where rows go besides memory: anything with `write` and `close`.

    One that has `open(meta)` is told facts of the run before the first row; what can't work should raise
    there, before training begins. One with `revises = True` may get a step early and again, from any thread, by
    `write(rows, at_once=True)`; what comes last counts. One with `takes_columns = True` gets
    `hookline.rows.Rows`, which can be gone through as the list of dicts that others get.
    """

    def write(self, rows: Any) -> None:
        """Takes the rows of one step: a list of dicts, unless it takes columns."""

    def close(self) -> None:
        """There is nothing more to come."""


def sinks_of(to: Any, *, resume: bool = False) -> list[Sink]:
    """The sinks that `to` names, one or a list: a folder, a URL, or an object; InvalidArgument for what is none.

    With `resume`, a run that is in the folder goes on.

    >>> [type(sink).__name__ for sink in sinks_of(["runs/a", "s3://bucket/runs/a"])]
    ['RunStore', 'Parquet']
    """
    found = [_sink_of(one, resume) for one in (to if isinstance(to, (list, tuple)) else [to])]
    if resume and not any(isinstance(sink, RunStore) for sink in found):
        raise InvalidArgument("resume=True needs a folder with a run that can go on: watch(..., to=folder).")
    return found


def _sink_of(one: Any, resume: bool) -> Sink:
    if isinstance(one, str) and "://" in one:
        return Parquet(one)
    if isinstance(one, (str, Path)):
        return RunStore(one, resume=resume)
    if not hasattr(one, "write") or not hasattr(one, "close"):
        raise InvalidArgument(
            f"to={one!r} is no sink: expected a folder, a URL, one of hookline.sinks, or an object with "
            "write(rows) and close()."
        )
    sink: Sink = one
    return sink
