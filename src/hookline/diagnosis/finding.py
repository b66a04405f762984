"""Finding: one thing that is wrong with a layer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

SEVERITIES = ("error", "warning")
"""The worst first."""


class Finding(NamedTuple):
    """One thing that is wrong: which rule says so, of which site, at which step, and a sentence why.

    `evidence` has the numbers that the rule went by, `advice` says what to look at or to try.
    """

    rule: str
    severity: str
    site: str
    step: int
    why: str
    evidence: Mapping[str, float]
    advice: str

    @property
    def what(self) -> str:
        """The name of the rule."""
        return self.rule

    def __str__(self) -> str:
        return f"{self.site or '(model)'}: {self.rule} at step {self.step:,}: {self.why}. {self.advice}"
