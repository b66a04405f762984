"""Places: which folder a run gets. A folder holds one run: two are never mixed."""

from __future__ import annotations

import os
import re
import time
import zlib
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from hookline.errors import InvalidArgument, RunError
from hookline.runfiles.reader import Reader

FILES = "rank*-*.sqlite"
LAUNCH = ("WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "TORCHELASTIC_RUN_ID", "SLURM_JOB_ID", "SLURM_STEP_ID")
"""What the processes of one distributed training have in common."""

BEGINNING = 60.0
"""An empty file that is older than so many seconds is nobody's: a process that makes one fills it at once."""


MOMENT = 1.0
"""Seconds that it may take, on a busy machine, until something is in a file that was made."""


def resolved(path: str | Path) -> Path:
    """The folder that is meant when it is given, wherever the process works later."""
    path = Path(path).expanduser().absolute()
    if "*" in str(path.parent) or path.name.count("*") > 1:
        raise InvalidArgument(f"{str(path)!r}: expected one * in the last part, which becomes a number.")
    return path


def numbered(path: Path, *, again: bool) -> Path:
    """A new folder whose name has the next number where `path` has a *; with `again` the latest one there is.

    >>> import tempfile
    >>> folder = Path(tempfile.mkdtemp())
    >>> [numbered(folder / "a-*", again=again).name for again in (False, False, True)]
    ['a-1', 'a-2', 'a-2']
    """
    if "*" not in path.name:
        return path
    before, after = path.name.split("*")
    name = re.compile(re.escape(before) + "([0-9]{1,9})" + re.escape(after))
    path.parent.mkdir(parents=True, exist_ok=True)
    while True:
        numbers = [int(found[1]) for one in path.parent.iterdir() if (found := name.fullmatch(one.name))]
        latest = max(numbers, default=0)
        if again and latest:
            return path.with_name(f"{before}{latest}{after}")
        try:
            (new := path.with_name(f"{before}{latest + 1}{after}")).mkdir()
        except FileExistsError:  # another process was faster
            continue
        return new


def launch() -> str:
    """One text for all processes of a training, another for the next one."""
    found = [f"{name}={os.environ[name]}" for name in LAUNCH if name in os.environ]
    return f"{zlib.crc32(' '.join(found or [f'parent={os.getppid()}']).encode()):08x}"


def file_of(folder: Path, rank: int) -> Path | None:
    """The file of a rank in a run's folder; None where there is none."""
    return max(folder.glob(f"rank{rank}-*.sqlite"), default=None)


def taken_by(folder: Path, rank: int) -> str | None:
    """Why the folder is not free for a run of this rank: what is there already; None where it is free."""
    for file in sorted(folder.glob(FILES)):
        own = file.name.startswith(f"rank{rank}-")
        if not file.stat().st_size:  # another process is just making it, or died then
            if own:
                return "a run that is just beginning, or whose process died then"
            continue
        meta = meta_of(file)
        if own or meta.get("launch") != launch():
            return described(file, meta)
    return None


def is_blank(file: Path) -> bool:
    """Whether a file of a run has neither a row nor a recording."""
    try:
        with closing(Reader(file)) as reader:
            return not reader.last_frame()[0] and not reader.recordings()
    except RunError:
        return False


def is_empty(file: Path) -> bool:
    """Whether there is nothing in a file; one that is being made is waited for, a moment."""
    until = time.monotonic() + MOMENT
    try:
        while not file.stat().st_size:
            if is_left_blank(file) or time.monotonic() > until:
                return True
            time.sleep(MOMENT / 50)
    except FileNotFoundError:  # whoever made it has taken it back
        return True
    return False


def is_left_blank(file: Path) -> bool:
    """Whether nothing came of a run, which is over: a model that could not be hooked, an exception right away."""
    if not file.stat().st_size:
        return time.time() - file.stat().st_mtime > BEGINNING
    return "end" in meta_of(file) and is_blank(file)


def described(file: Path, meta: dict[str, Any]) -> str:
    """A run in few words."""
    ended = f"ended {meta['end']}" if "end" in meta else "has no end: it is being written, or was killed"
    last = last_step(file)
    steps = f", steps up to {last}" if last >= 0 else ", no steps"
    return f"a run that began {meta.get('started', 'some time ago')}{steps}, and {ended}"


def meta_of(file: Path) -> dict[str, Any]:
    """The facts of a run's file; none where it can't be read."""
    try:
        with closing(Reader(file)) as reader:
            return reader.meta
    except RunError:
        return {}


def last_step(file: Path) -> int:
    """The largest step in a file; -1 where there is none."""
    try:
        with closing(Reader(file)) as reader:
            return int(reader.last_frame()[1])
    except RunError:
        return -1


def is_being_written(meta: dict[str, Any]) -> bool:
    """Whether the process that wrote these facts lives on this machine and has not ended the run."""
    process = meta.get("process")
    if "end" in meta or not isinstance(process, int) or process == os.getpid():
        return False
    try:
        since = datetime.fromisoformat(meta.get("since", meta["started"])).astimezone(UTC).timestamp()
        return _began(process) <= since + 1  # a younger one only has got its number
    except (OSError, KeyError, ValueError, IndexError, AttributeError):
        return False


def _began(process: int) -> float:
    """When a process began, as Linux tells it; OSError where it is not there any more."""
    state, *rest = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    if state in "ZX":
        raise ProcessLookupError(process)
    age = time.clock_gettime(time.CLOCK_BOOTTIME) - int(rest[18]) / os.sysconf("SC_CLK_TCK")
    return time.time() - age
