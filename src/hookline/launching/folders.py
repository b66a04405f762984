"""Folders: where the runs of a script are kept, the same for all processes of one launch."""

from __future__ import annotations

import os
import time
from pathlib import Path

from hookline.errors import InvalidArgument

RUNS = "runs"


def folder_for(to: str | Path | None, label: str) -> Path:
    """The folder that was asked for, or a new one named by script and time; InvalidArgument where it is taken.

    Nothing is made yet: a script in which nothing is found leaves nothing behind.
    """
    if to is None:
        return _free(Path.cwd() / RUNS / f"{label}-{_moment()}")
    folder = Path(to).expanduser().absolute()
    if folder.exists() and not folder.is_dir():
        raise InvalidArgument(f"{str(to)!r} is a file: expected a folder for the run, a new one or an empty one.")
    if _is_taken(folder):
        raise InvalidArgument(
            f"there is a run in {str(to)!r} already, and none is written over: give another folder, "
            "or none and it gets one of its own."
        )
    return folder


def _free(folder: Path) -> Path:
    """Where a second run of the same second is alone; the processes of one launch keep one name."""
    number, found = 1, folder
    while _is_taken(found):
        number += 1
        found = folder.with_name(f"{folder.name}-{number}")
    return found


def _is_taken(folder: Path) -> bool:
    rank = os.environ.get("RANK", "0")
    return any(folder.glob(f"rank{rank}-*.sqlite"))


def _moment() -> str:
    """The time, to the second; of processes that were launched together, when their launcher began."""
    if int(os.environ.get("WORLD_SIZE", "1")) <= 1:
        return _written(time.time())
    if os.environ.get("LOCAL_WORLD_SIZE") == os.environ.get("WORLD_SIZE"):
        return _written(_began(os.getppid()))
    run = os.environ.get("TORCHELASTIC_RUN_ID", "none")  # of several machines: no clock is one for all
    return run if run != "none" else f"port{os.environ.get('MASTER_PORT', '0')}"


def _written(seconds: float) -> str:
    return time.strftime("%Y%m%d-%H%M%S", time.localtime(seconds))


def _began(process: int) -> float:
    """When a process began; where nobody tells, the start of this hour."""
    try:
        ticks = int(Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[19])
        booted = next(line for line in Path("/proc/stat").read_text().splitlines() if line.startswith("btime"))
        return int(booted.split()[1]) + ticks / os.sysconf("SC_CLK_TCK")
    except (OSError, ValueError, IndexError, StopIteration):
        return time.time() // 3600 * 3600
