"""Score: what a verdict says of a program, beside what its label says.

Findings of severity "error" and "warning" count, errors first, else in the order of the verdict; notes do not.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any

from bench.diagnosis.labels import Label, rules_of_faults

Finding = Mapping[str, Any]
NEAR = 5
"""An onset is right within so many recorded steps; every step is recorded."""
FIRST = 3
COUNTED = ("error", "warning")


@dataclass
class Score:
    """What was right about a verdict; the fields of a healthy program are about what should not be there."""

    label: Label
    detected: bool = False
    site: bool = False
    site_of_three: bool = False
    cause: bool = False
    cause_of_three: bool = False
    onset: bool = False
    errors: int = 0
    warnings: int = 0
    told: list[str] = field(default_factory=list)
    """The first findings in short."""
    same: bool = True
    """Whether the program did the same as without hookline: stdout, exit code, saved weights."""
    trouble: str = ""
    """Why there is no verdict, if there is none."""


def scored(label: Label, findings: Sequence[Finding]) -> Score:
    """The score of a verdict."""
    counted = sorted((one for one in findings if one["severity"] in COUNTED), key=_badness)
    few = counted[:FIRST]
    score = Score(label, bool(counted), told=[_short(one) for one in few])
    score.errors = sum(one["severity"] == "error" for one in counted)
    score.warnings = len(counted) - score.errors
    if label.healthy or not few:
        return score
    score.site, score.site_of_three = fits_site(label, few[0]), any(fits_site(label, one) for one in few)
    score.cause, score.cause_of_three = fits_cause(label, few[0]), any(fits_cause(label, one) for one in few)
    # That of the finding that is right, if one is: a wrong one may be right about the step by chance.
    meant = next((one for one in few if fits_cause(label, one)), few[0])
    score.onset = label.onset[0] - NEAR <= meant["step"] <= label.onset[1] + NEAR
    return score


def fits_site(label: Label, finding: Finding) -> bool:
    """Whether the module or parameter that is named is one of those of the label."""
    return any(fnmatchcase(finding["site"], glob) for glob in label.sites)


def fits_cause(label: Label, finding: Finding) -> bool:
    """Whether the rule is one of those that name the class of the fault."""
    right = (*rules_of_faults()[label.fault], *label.causes)
    return any(fnmatchcase(finding["rule"], glob) for glob in right)


def _badness(finding: Finding) -> int:
    return COUNTED.index(finding["severity"])


def _short(finding: Finding) -> str:
    return f"{finding['rule']} at {finding['site'] or 'the model'}, step {finding['step']}"


@dataclass
class Total:
    """Sums over programs, with how many there are of each kind."""

    broken: int
    healthy: int
    counts: dict[str, int]
    alarmed: int
    """Healthy programs with an error."""
    warned: int
    """Healthy programs with a warning, and no error."""
    changed: list[str]
    """Programs that did something else under hookline."""


RIGHT = ("detected", "site", "site_of_three", "cause", "cause_of_three", "onset")


def totalled(scores: Sequence[Score]) -> Total:
    """The sums."""
    broken = [one for one in scores if not one.label.healthy]
    healthy = [one for one in scores if one.label.healthy]
    return Total(
        len(broken),
        len(healthy),
        {name: sum(getattr(one, name) for one in broken) for name in RIGHT},
        sum(one.errors > 0 for one in healthy),
        sum(one.warnings > 0 and not one.errors for one in healthy),
        [one.label.name for one in scores if not one.same],
    )
