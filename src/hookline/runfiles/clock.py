"""Clock: the time of day that never goes back, whoever sets the machine's clock meanwhile.

It is read once in a process; from then on a clock counts that nobody can set. So what a process notes later has
the later time, and no time that passed is negative.
"""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta

_began: tuple[datetime, float] | None = None
_since = datetime.min.replace(tzinfo=UTC)


def now(timespec: str = "seconds") -> str:
    """The time, as text that sorts.

    >>> now() <= now()
    True
    """
    global _began
    if _began is None:
        _began = datetime.now(UTC), _counted()
    there, count = _began
    return max(there + timedelta(seconds=_counted() - count), _since).isoformat(timespec=timespec)


def not_before(time: str) -> None:
    """From now on it is at least that time: a run that goes on was written by then, whatever the clock says."""
    global _since
    _since = max(_since, datetime.fromisoformat(time).astimezone(UTC))


def _counted() -> float:
    """Seconds since some moment; on Linux those too in which the machine slept."""
    return time.clock_gettime(time.CLOCK_BOOTTIME) if hasattr(time, "CLOCK_BOOTTIME") else time.monotonic()
