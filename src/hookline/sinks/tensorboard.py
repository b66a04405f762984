"""TensorBoard: scalars and whole histograms as event files, by the tensorboard package; torch is not needed."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from hookline.leaving import no_longer, until_exit
from hookline.optional import need
from hookline.rows import Row
from hookline.sinks.buckets import buckets
from hookline.sinks.tags import by_step, scalars, tag

FLUSH_SECONDS = 5


class TensorBoard:
    """A sink that writes event files to `folder`, for `tensorboard --logdir folder`.

    Histograms are those of the rows, bin by bin: nothing is sampled or counted again.
    """

    def __init__(self, folder: str | Path, *, stats: Sequence[str] | None = None, histograms: bool = True) -> None:
        self._folder = str(folder)
        if "://" not in self._folder:  # a folder of this machine, wherever the process works later
            self._folder = str(Path(folder).expanduser().absolute())
        self._stats, self._histograms = stats, histograms
        self._writer: Any = None
        self._events: Any = None

    def open(self, meta: dict[str, Any] | None = None) -> None:
        """Makes the event file."""
        what = "the sink TensorBoard"
        self._events = need("tensorboard.compat.proto.event_pb2", what=what)
        files = need("tensorboard.summary.writer.event_file_writer", what=what)
        self._writer = files.EventFileWriter(self._folder, flush_secs=FLUSH_SECONDS)
        until_exit(self)

    def write(self, rows: list[Row]) -> None:
        """One event for each step, with everything that was seen in it."""
        if self._writer is None:
            self.open()
        for step, some in by_step(rows).items():
            event = self._events.Event(step=step, wall_time=time.time())
            for row in some:
                for name, number in scalars(row, self._stats).items():
                    event.summary.value.add(tag=name, simple_value=number)
                self._add_histogram(event, row)
            self._writer.add_event(event)

    def _add_histogram(self, event: Any, row: Row) -> None:
        found = buckets(row.get("hist")) if self._histograms else None
        if found is None:
            return
        histogram = event.summary.value.add(tag=tag(row, "hist")).histo
        finite = row["count"] - row["nan"] - row["inf"]
        histogram.min, histogram.max, histogram.num = row["min"], row["max"], finite
        histogram.sum, histogram.sum_squares = row["mean"] * finite, row["l2"] ** 2
        # A bucket has its upper limit only: an empty one in front says where the first begins.
        histogram.bucket_limit.extend(found.edges.tolist())
        histogram.bucket.extend([0, *found.counts.tolist()])

    def close(self) -> None:
        """Writes what is left and closes the file."""
        if self._writer is not None:
            self._writer.close()
            self._writer = None
            no_longer(self)

    at_exit = close
