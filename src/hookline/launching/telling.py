"""Telling: what was found in each model, as the lines that a terminal shows and as JSON."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from hookline.diagnosis.finding import SEVERITIES, Finding
from hookline.diagnosis.verdict import Verdict


class Told(NamedTuple):
    """A model and what was found in it; without a verdict nothing was recorded."""

    name: str
    kind: str
    path: Path | None
    verdict: Verdict | None

    @property
    def findings(self) -> list[Finding]:
        return [] if self.verdict is None else self.verdict.findings


def lines_of(told: Sequence[Told]) -> Iterator[str]:
    """The verdict: a few lines for each model."""
    for one in told:
        who = f"{one.name} ({one.kind})"
        if one.verdict is None:
            yield f"{who}: it was found and never called, so nothing was recorded of it."
        else:
            yield f"{who}: {one.verdict.sentence}"
            yield from one.verdict.lines


def as_json(told: Sequence[Told]) -> list[dict[str, Any]]:
    """The findings of all models, each with the model and the folder of its run."""
    return [
        {"model": one.name, "run": None if one.path is None else str(one.path), **finding.to_json()}
        for one in told
        for finding in one.findings
    ]


def is_as_bad(told: Sequence[Told], severity: str) -> bool:
    """Whether any finding is of that severity, or worse."""
    bad = SEVERITIES[: SEVERITIES.index(severity) + 1]
    return any(finding.severity in bad for one in told for finding in one.findings)
