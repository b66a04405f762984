"""Layers that begin as copies of one another and stay so."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from hookline.diagnosis.finding import Finding
from hookline.diagnosis.registry import found, rule
from hookline.diagnosis.training import Seen, Training

ENOUGH = 10
"""Records at which they move and stay equal."""
EQUAL = 1e-5
"""Of their size: how far statistics of equal tensors may be apart."""
MEASURES = ("mean", "std", "min", "max", "l2")


@rule(
    "copies",
    advice="Initialise them apart, or add a little noise to each; a gate that is zero can't tell them apart.",
)
def copies(training: Training) -> Iterator[Finding]:
    """Several layers have the same weights, all are trained, and they stay the same: they do the work of one.

    When: weights of one shape, in memory of their own, have equal mean, deviation, ends and norm at each of ten
    records and more at which they move. Why it can be wrong: two models are trained in step on purpose, to compare
    them.
    """
    params = training.wiring.params
    moving = {one.site for one in training.curves("update") if np.count_nonzero(one.stats["absmax"]) >= ENOUGH}
    known: dict[tuple[object, ...], list[Seen]] = {}
    for one in training.curves("param"):
        shape = params[one.site].shape if one.site in params else []
        if one.site not in moving or len(shape) < 2 or len(one.steps) < ENOUGH or not one.stats["std"].all():
            continue
        known.setdefault((*shape, len(one.steps), f"{one.stats['l2'][-1]:.4g}"), []).append(one)
    equal: dict[str, Seen] = {}
    for some in known.values():
        for one in some[1:]:
            if _are_equal(some[0], one) and one.site not in params[some[0].site].shares_with:
                equal |= {some[0].site: some[0], one.site: one}
    if not equal:
        return
    site = _above(list(equal))
    owners = list(dict.fromkeys(training.owner(name) for name in equal))
    first = min(int(one.steps[0]) for one in equal.values())
    why = f"{len(owners)} layers are copies of one another and stay so: {', '.join(owners[:4])}"
    rows = [(name, "param") for name in list(equal)[:8]]
    yield found(site, first, why, confidence=0.9, rows=rows, params=list(equal)[:50])


def _are_equal(one: Seen, other: Seen) -> bool:
    if (one.steps != other.steps).any():
        return False
    size = np.maximum(one.stats["absmax"], 1e-30)
    return all(
        (np.abs(one.stats[name] - other.stats[name]) <= EQUAL * (one.stats["l2"] if name == "l2" else size)).all()
        for name in MEASURES
    )


def _above(names: list[str]) -> str:
    """The module that has all of these.

    >>> _above(["ff.experts.0.w", "ff.experts.1.w"])
    'ff.experts'
    """
    parts = [name.split(".")[:-1] for name in names]
    same = 0
    while all(len(one) > same and one[same] == parts[0][same] for one in parts):
        same += 1
    return ".".join(parts[0][:same])
