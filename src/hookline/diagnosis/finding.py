"""Finding: one thing that is wrong with a layer."""

from __future__ import annotations

from typing import NamedTuple


class Finding(NamedTuple):
    """One thing that is wrong: which, a sentence why, and the step at which it is seen."""

    what: str
    why: str
    step: int
