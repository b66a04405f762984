"""Judging: what is wrong with a run as a whole, in the words and the plain data that the page shows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from hookline.diagnosis import diagnose
from hookline.diagnosis.diagnose import findings_in
from hookline.diagnosis.finding import Finding
from hookline.diagnosis.training import Training
from hookline.diagnosis.verdict import verdict

MOST_FINDINGS = 200
"""So many findings are told, and so many consequences of each."""
HEALTHY, UNKNOWN = "healthy", "unknown"


def judge(training: Training) -> list[Finding]:
    """What is wrong with a training: causes first, each with what follows from it."""
    return findings_in(training)


def by_module(findings: Sequence[Finding], training: Training) -> dict[str, list[Finding]]:
    """The findings of each module that has rows or a finding, the worst first; an empty list is a healthy module.

    A module without either is left out: nobody has looked at it. Notes are left out as well: they are no illness.
    """
    rows = {training.owner(one.site) for one in training.series if one.kind != "scalar"}
    found = diagnose.by_module(findings, training)
    return {module: some for module, some in found.items() if some or module in rows}


def told(findings: Sequence[Finding], training: Training, until: int | None) -> dict[str, Any]:
    """The verdict as the page has it: {"state", "sentence", "looked"}.

    `state` is the severity of the worst finding, or "healthy" where there are none but notes; `looked` is what was
    looked at.
    """
    found = verdict(findings, training)
    worse = [one.severity for one in findings if one.severity != "note"]
    rows = [one for one in training.series if one.kind != "scalar"]
    looked = {
        **found.looked,
        "layers": len({training.owner(one.site) for one in rows}),
        "kinds": sorted({one.kind for one in rows}),
        "scalars": sorted({one.site for one in training.series if one.kind == "scalar"}),
        "wiring": bool(training.wiring.params or training.wiring.optimizers),
        "until": until,
    }
    return {"state": worse[0] if worse else HEALTHY, "sentence": found.sentence, "looked": looked}


def plain(value: Any) -> Any:
    """Data as JSON has it: a number that is not finite becomes text, one of numpy's a plain one.

    >>> plain({"rms": float("nan"), "at": (np.float32(0.5), np.int64(3))})
    {'rms': 'nan', 'at': [0.5, 3]}
    """
    if isinstance(value, dict):
        return {str(name): plain(one) for name, one in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [plain(one) for one in value]
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, np.ndarray):
        return plain(value.tolist())
    if value is None or isinstance(value, (bool, int, str)):
        return value
    if isinstance(value, float):
        return value if np.isfinite(value) else str(value)
    return str(value)


def as_json(findings: Sequence[Finding]) -> list[dict[str, Any]]:
    """Findings as plain data, at most MOST_FINDINGS on each level."""
    every = [plain(one.to_json()) for one in findings[:MOST_FINDINGS]]
    return [{**one, "consequences": one["consequences"][:MOST_FINDINGS]} for one in every]
