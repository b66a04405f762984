"""Parquet: parts of a run at any fsspec URL, for many machines and for buckets, where SQLite can't write.

A part is there whole or not at all: locally it is renamed when it is written, and an object store shows an
object when all of it has arrived.
"""

from __future__ import annotations

import io
import os
from typing import Any

from hookline.errors import RunError
from hookline.optional import need
from hookline.rows import Row
from hookline.sinks.threaded import Threaded
from hookline.tables import arrow_table

SECONDS = 10.0
ROWS = 20_000


class Parquet(Threaded):
    """A sink that writes `rank=R/part-N-....parquet` below `url` (`s3://bucket/run`, `file:///...`, `memory://...`).

    A part is written after so many `seconds` or `rows`; a crash loses what no part has. `options` go to fsspec.
    """

    def __init__(self, url: str, *, seconds: float = SECONDS, rows: int = ROWS, **options: Any) -> None:
        self.url = url
        self._seconds, self._rows, self._options = seconds, rows, options
        self._token = os.urandom(4).hex()  # another process may write to the same place
        self._parts = 0
        self._meta: dict[str, Any] = {}
        self._files: Any = None
        self._folder = ""

    def open(self, meta: dict[str, Any] | None = None) -> None:
        """Makes the folder; RunError where there can be none."""
        self._meta = {"rank": int(os.environ.get("RANK", 0)), **(meta or {})}
        need("pyarrow.parquet", what="the sink Parquet")
        url_to_fs = need("fsspec.core", what="the sink Parquet").url_to_fs
        try:
            self._files, root = url_to_fs(self.url, **self._options)
            self._folder = f"{root.rstrip('/')}/rank={self._meta['rank']}"
            self._files.makedirs(self._folder, exist_ok=True)
        except (OSError, ValueError, ImportError) as error:
            raise RunError(f"a run can't be kept at {self.url}: {error}") from error
        self._begin(seconds=self._seconds, rows=self._rows)

    def _send(self, rows: list[Row]) -> None:
        out = io.BytesIO()
        need("pyarrow.parquet").write_table(arrow_table(rows, self._meta), out, compression="zstd")
        name = f"part-{self._parts:06d}-{self._token}.parquet"
        self._parts += 1
        whole = f"{self._folder}/{name}"
        if "file" not in self._files.protocol:
            self._files.pipe_file(whole, out.getvalue())
            return
        part = f"{self._folder}/.{name}"  # a dot: readers of folders of Parquet files pass over it
        self._files.pipe_file(part, out.getvalue())
        self._files.mv(part, whole)

    def _error(self, error: Exception) -> RunError:
        return RunError(f"{self.url}: {error}. The parts that were written are there.")
