"""State: what a run's files tell of it: its facts, and whether it is still written."""

from __future__ import annotations

import time
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from hookline.errors import RunError
from hookline.runfiles.reader import Reader

FILES = "rank*-*.sqlite"
SILENT = 60.0
"""A run without an end to which nothing was written for so many seconds may have been killed."""


def facts(files: list[Path]) -> dict[str, Any]:
    """The facts in the first of these files that a watch wrote; `record(to=)` leaves files in a run as well."""
    found: dict[str, Any] = {}
    errors: list[RunError] = []
    for path in files:
        try:
            with closing(Reader(path)) as reader:
                found = found or reader.meta
                if reader.meta.get("by") != "record":
                    return reader.meta
        except RunError as error:
            errors.append(error)
    if errors and len(errors) == len(files):
        raise errors[0]
    return found


ENDS = {"normally": "ended", "interrupted": "interrupted"}


def state_of(meta: dict[str, Any], path: Path) -> dict[str, Any]:
    """{"state": ..., "started": ..., "ended": ..., "written": ...} of the run in a folder, from its facts."""
    files = [file for ending in ("", "-wal") for file in path.glob(FILES + ending)]  # to -shm readers write
    written = max((file.lstat().st_mtime for file in files), default=0.0)
    if "end" in meta:
        state = ENDS.get(meta["end"], "failed")
    else:
        state = "running" if time.time() - written < SILENT else "silent"
    return {
        "state": state,
        "why": meta.get("error"),
        "started": meta.get("started"),
        "ended": meta.get("ended"),
        "written": datetime.fromtimestamp(written, UTC).isoformat(timespec="seconds"),
    }
