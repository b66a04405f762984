"""Finding: one thing that is wrong with a training, and what follows from it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

SEVERITIES = ("error", "warning", "note")
"""The worst first. An error is a defect; a warning very likely one; a note is worth knowing."""

Evidence = Mapping[str, Any]
"""The numbers and names that a rule went by: JSON."""


@dataclass(frozen=True)
class Finding:
    """One thing that is wrong: which rule says so, of which site, from which step on, and a sentence why.

    `site` is a module or a parameter, "" for the model itself. `step` is the first step at which it can be seen.
    `evidence` has the numbers that the rule went by, and in "rows" where they are: a list of [site, kind].
    `advice` says what to look at or to try; `line` is the place in the code ("train.py:12"), where it is known.
    `confidence` is from 0 to 1. `consequences` are findings that follow from this one.
    """

    rule: str
    severity: str
    site: str
    step: int
    why: str
    evidence: Evidence = field(default_factory=lambda: MappingProxyType({}))
    advice: str = ""
    line: str = ""
    confidence: float = 1.0
    consequences: tuple[Finding, ...] = ()

    @property
    def what(self) -> str:
        """The name of the rule."""
        return self.rule

    @property
    def all(self) -> tuple[Finding, ...]:
        """This finding and those that follow from it."""
        return (self, *(below for one in self.consequences for below in one.all))

    def to_json(self) -> dict[str, Any]:
        """Plain data, for JSON."""
        own = {name: getattr(self, name) for name in ("rule", "severity", "site", "step", "why")}
        more = {"advice": self.advice, "line": self.line, "confidence": self.confidence}
        after = {"consequences": [one.to_json() for one in self.consequences]}
        return {**own, "evidence": {name: _plain(value) for name, value in self.evidence.items()}, **more, **after}

    def __str__(self) -> str:
        where = f" ({self.line})" if self.line else ""
        return f"{self.site or '(model)'}: {self.rule} from step {self.step:,}{where}: {self.why}. {self.advice}"


def _plain(value: Any) -> Any:
    """A value as JSON has it: NaN and Inf are texts."""
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value
