"""Verdict: what is wrong with a training, or that nothing is, as a few lines for a terminal."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from hookline.diagnosis.finding import Finding
from hookline.diagnosis.registry import known
from hookline.diagnosis.training import Training

WIDTH = 100
MOST = 5
"""So many findings are told in full, and so many consequences of each."""
SIGNS = {"error": "✖", "warning": "▲", "note": "·"}


@dataclass(frozen=True)
class Verdict:
    """One sentence, and the lines below it. `findings` are those it is about; `looked` says what was looked at."""

    sentence: str
    lines: list[str]
    findings: list[Finding] = field(default_factory=list)
    looked: dict[str, int] = field(default_factory=dict)

    @property
    def severity(self) -> str:
        """That of the worst finding: "error", "warning" or "note"; "" where there is none."""
        return self.findings[0].severity if self.findings else ""

    def to_json(self) -> dict[str, Any]:
        """Plain data, for JSON."""
        findings = [one.to_json() for one in self.findings]
        return {"verdict": self.sentence, "severity": self.severity, "looked": self.looked, "findings": findings}

    def __str__(self) -> str:
        return "\n".join([self.sentence, *self.lines])


def verdict(findings: Sequence[Finding], training: Training, *, rules: int | None = None) -> Verdict:
    """What `diagnose` found of a training, in words. `rules` is how many were asked, all where it is None.

    >>> one = Finding("lr_zero", "error", "", 3, "the learning rate is 0", advice="Look at the scheduler.")
    >>> print(verdict([one], Training([], lambda number: None, [("", "Net")])))
    1 thing is wrong: from step 3, the model: the learning rate is 0.
      ✖ the model, from step 3: lr zero
              the learning rate is 0
              try: Look at the scheduler.
    """
    looked = {
        "steps": len(training.steps),
        "modules": len(training.modules),
        "parameters": len(_parameters(training)),
        "rules": len(known()) if rules is None else rules,
    }
    worse = [one for one in findings if one.severity != "note"]
    notes = [one for one in findings if one.severity == "note"]
    at = (
        f"Looked at {looked['steps']:,} recorded steps, {looked['modules']:,} modules and "
        f"{looked['parameters']:,} parameters with {looked['rules']} rules."
    )
    lines = []
    for one in worse[:MOST]:
        lines += _told(one)
    if len(worse) > MOST:
        lines.append(f"  and {len(worse) - MOST} more")
    if notes:
        lines.append(f"  {len(notes)} note{'s' * (len(notes) > 1)}, no faults:")
        lines += [_short(one) for one in notes[:MOST]]
    return Verdict(_sentence(worse, looked), [*lines, *([] if worse else [at])], list(findings), looked)


def _sentence(worse: list[Finding], looked: dict[str, int]) -> str:
    if not looked["steps"] and not worse:
        return "There is nothing to look at: no step was recorded."
    if not worse:
        return "Nothing is wrong."
    number = "1 thing is" if len(worse) == 1 else f"{len(worse)} things are"
    first = worse[0]
    sure = "wrong" if first.severity == "error" else "probably wrong"
    return f"{number} {sure}: from step {first.step:,}, {_site(first)}: {first.why}."


def _told(one: Finding) -> list[str]:
    where = f" ({one.line})" if one.line else ""
    lines = [f"  {SIGNS[one.severity]} {_site(one)}, from step {one.step:,}{where}: {one.rule.replace('_', ' ')}"]
    lines += _wrapped(one.why)
    lines += _wrapped(f"seen: {evidence}") if (evidence := _evidence(one)) else []
    for after in one.consequences[:MOST]:
        lines += _wrapped(f"-> {_site(after)}, from step {after.step:,}: {after.why}")
    if len(one.consequences) > MOST:
        lines.append(f"          -> and {len(one.consequences) - MOST} more")
    return lines + (_wrapped(f"try: {one.advice}") if one.advice else [])


def _short(one: Finding) -> str:
    where = f" ({one.line})" if one.line else ""
    return textwrap.shorten(
        f"    · {_site(one)}{where}: {one.why}", WIDTH + 40, placeholder=" ...", drop_whitespace=False
    )


def _wrapped(text: str) -> list[str]:
    return textwrap.wrap(
        text,
        WIDTH,
        initial_indent=" " * 10,
        subsequent_indent=" " * 12,
        break_long_words=False,
        break_on_hyphens=False,
    )


def _evidence(one: Finding) -> str:
    """The numbers in a finding's evidence, and the rows that they are of."""
    numbers = [
        f"{name} {value:.4g}"
        for name, value in one.evidence.items()
        if isinstance(value, (int, float)) and not isinstance(value, bool)
    ]
    rows = [f"{site or '(model)'} {kind}" for site, kind in one.evidence.get("rows", [])[:2]]
    return "; ".join([*numbers, *(["rows of " + ", ".join(rows)] if rows else [])])


def _site(one: Finding) -> str:
    return one.site or "the model"


def _parameters(training: Training) -> set[str]:
    return {*training.wiring.params, *(one.site for one in training.curves("param", "param_grad", "update"))}
