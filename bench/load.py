"""Load: how busy others keep the machine while something is measured; timings can be read only so far."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

MOST = 0.5
"""So many cores may be busy with others' work; above that, timings are told to be disturbed."""
STAT = Path("/proc/stat")


def average() -> float:
    """The load average of the last minute; NaN where the system has none."""
    return os.getloadavg()[0] if hasattr(os, "getloadavg") else float("nan")


class Meter:
    """Counts from its making on how many cores others have kept busy, where the system tells (Linux)."""

    def __init__(self) -> None:
        self.at_start = average()
        self._began = time.monotonic(), _busy(), _own()

    def others(self) -> float:
        """Cores that others kept busy, on average; NaN where it can't be told."""
        then, busy, own = self._began
        seconds = max(time.monotonic() - then, 1e-9)
        return max((_busy() - busy - _own() + own) / seconds, 0.0)

    def told(self) -> str:
        """The load at the start and by now, as a sentence without an end."""
        others = self.others()
        busy = "" if others != others else f"; others kept {others:.2f} cores busy"
        return f"load average {self.at_start:.2f} at the start, {average():.2f} at the end{busy}"

    def warn(self, what: str) -> None:
        """Says on stderr where others disturbed it."""
        others = self.others()
        if others > MOST:
            print(
                f"{what}: others kept {others:.2f} cores busy meanwhile; expected at most {MOST:g}. "
                "Read these timings with care, or measure again on a quiet machine.",
                file=sys.stderr,
            )


def _busy() -> float:
    """Seconds for which all cores together were busy; NaN where it can't be told."""
    if not STAT.exists():
        return float("nan")
    user, nice, system, _, _, irq, softirq = map(int, STAT.read_text().split("\n", 1)[0].split()[1:8])
    return (user + nice + system + irq + softirq) / os.sysconf("SC_CLK_TCK")


def _own() -> float:
    """Seconds of this process and of those that it has started and waited for."""
    return sum(os.times()[:4])
