"""Sink: what anything must have that rows go to."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Protocol

from hookline.errors import InvalidArgument
from hookline.sinks.frames import Row
from hookline.sinks.parquet import Parquet
from hookline.sinks.store import RunStore


class Sink(Protocol):
    """Where rows go besides memory: anything with `write` and `close`.

    One that has `open(meta)` is told facts of the run before the first row; what can't work should raise
    there, before training begins.
    """

    def write(self, rows: list[Row]) -> None:
        """Takes the rows of one step."""

    def close(self) -> None:
        """There is nothing more to come."""


def sinks_of(to: Any) -> list[Sink]:
    """The sinks that `to` names, one or a list: a folder, a URL, or an object; InvalidArgument for what is none.

    >>> [type(sink).__name__ for sink in sinks_of(["runs/a", "s3://bucket/runs/a"])]
    ['RunStore', 'Parquet']
    """
    return [_sink_of(one) for one in (to if isinstance(to, (list, tuple)) else [to])]


def _sink_of(one: Any) -> Sink:
    if isinstance(one, str) and "://" in one:
        return Parquet(one)
    if isinstance(one, (str, Path)):
        return RunStore(one)
    if not hasattr(one, "write") or not hasattr(one, "close"):
        raise InvalidArgument(
            f"to={one!r} is no sink: a folder, a URL, one of hookline.sinks, or an object with write(rows) and "
            "close() is wanted."
        )
    sink: Sink = one
    return sink
