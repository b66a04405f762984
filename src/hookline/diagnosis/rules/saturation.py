"""Activations that are flat where their inputs are."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from hookline.diagnosis.activations import before_functions, mean_slope
from hookline.diagnosis.finding import Finding
from hookline.diagnosis.measures import Array, median, recent, since
from hookline.diagnosis.registry import found, rule
from hookline.diagnosis.training import Seen, Training

ENOUGH = 3
FLAT = {"tanh": 0.02, "sigmoid": 0.005}
"""The mean derivative below which an activation is saturated; at 0 they are 1 and 0.25."""
FLAT_AT_FIRST = {"tanh": 0.2, "sigmoid": 0.03}
"""The same from the first record on: what was learnt may be sharp, what was not should not be."""
GATES = ("gate", "attn", "attention", "se.", "squeeze", "excit", "prob")


@rule(
    "saturated",
    advice="Scale what comes into it, put a norm in front of it, initialise with smaller weights or "
    "lower the learning rate.",
)
def saturated(training: Training) -> Iterator[Finding]:
    """A tanh or sigmoid is flat where nearly all of its inputs are: no gradient comes through.

    When: the mean derivative is below 0.02 (tanh) or 0.005 (sigmoid) over the last records, or below 0.2 and 0.03
    from the first one on. Of a module it follows from mean and norm of its output (1 - y², y - y²); of a function
    from mean and deviation of the output of the layer in front of it. Gates and the model's last activation
    saturate by design and are left out; of functions only those whose result goes into a layer are looked at.
    Why it can be wrong: a gate that is not called one.
    """
    outputs = list(training.trained("output"))
    last = max((training.place(one.site) for one in outputs if one.site in training.leaves), default=-1)
    told: set[str] = set()
    for kind, one, slope in _slopes(training, outputs):
        if len(one.steps) < ENOUGH or one.site in told or training.place(one.site) == last:
            continue
        if any(word in one.site.lower() for word in GATES):
            continue
        first = 0 if (slope < FLAT_AT_FIRST[kind]).all() else since(slope < FLAT[kind])
        if first is not None and len(one.steps) - first >= ENOUGH:
            told.add(one.site)
            yield found(
                one.site,
                one.steps[first],
                f"it is saturated: the mean slope of the {kind} is {max(recent(slope), 0):.2g}, so "
                "hardly any gradient comes through",
                confidence=0.8,
                rows=[(one.site, "output")],
                slope=median(slope[first:]),
            )


def _slopes(training: Training, outputs: list[Seen]) -> Iterator[tuple[str, Seen, Array]]:
    """The kind of each activation, the series that tells of it, and its mean derivative."""
    for one in outputs:
        kind = training.type_of(one.site).lower()
        if kind in FLAT:
            square = one.stats["l2"] ** 2 / np.maximum(one.stats["count"], 1)
            yield kind, one, 1 - square if kind == "tanh" else one.stats["mean"] - square
    for kind in FLAT:
        for one in before_functions(training, kind):
            yield kind, one, mean_slope(kind, one.stats)
