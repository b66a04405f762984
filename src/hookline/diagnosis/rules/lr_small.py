"""Learning rates that move, and are far too small all the same."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from hookline.diagnosis.finding import Finding
from hookline.diagnosis.measures import median, trend
from hookline.diagnosis.registry import found, rule
from hookline.diagnosis.training import Scalar, Training
from hookline.rows import RATIO

ENOUGH, LONG = 30, 50
"""Records of a schedule, and of weights that hardly move."""
OF_IT = 0.02
"""The largest rate of a schedule, as a share of the one that the optimizer was made with."""
USUAL = {"SGD": 1.0, "": 0.02}
"""Rates up to these are meant as they are, by the optimizer's type; above, a schedule brings the real one (lr=1
with the factors of Noam)."""
RISING = 0.8
"""A schedule whose largest rate comes after so much of the records is still in its warm-up."""
MOVED, NOTHING = 1e-3, 1e-4
"""Of their size: weights that all steps together change by less, where the loss stands still, and wherever."""
SMALL = {"SGD": 1e-4, "": 1e-5}
"""Rates up to these may be why; else it is the gradient."""
BETTER, FALLS = 0.98, -0.3
"""Of the loss at the start, and its rank correlation with the steps: what falls more is learning."""


@rule(
    "lr_small",
    advice="Look at what the scheduler multiplies: LambdaLR wants a factor, not a rate; is an exponent missing?",
)
def lr_small(training: Training) -> Iterator[Finding]:
    """The learning rate is so small that the training can't get anywhere.

    When: over thirty records a schedule never lets any come above a fiftieth of the rate that the optimizer was
    made with, though that is a usual one, and it is past its warm-up; or over fifty records all steps together
    change weights by less than a thousandth of their size, the rate is 0.00001 or less (SGD: 0.0001), and the loss
    stands still; or by a tenth of that. Why it can be wrong: a model that was trained before is to change that
    little.
    """
    groups = [(training.scalars.get(name), initial, kind) for name, initial, kind in _groups(training)]
    if groups and all(rate is not None and _is_scaled_away(rate, initial, kind) for rate, initial, kind in groups):
        rate, initial, _ = groups[0]
        assert rate is not None
        largest, step = float(np.max(rate.values)), int(rate.steps[0])
        why = (
            f"the learning rate is {largest:.2g} at most, while the optimizer was made with {initial:.2g}: "
            f"the schedule takes away all but a {initial / largest:,.0f}th of it"
        )
        yield found("", step, why, confidence=0.8, rows=[("lr", "scalar")], lr=largest, initial_lr=initial)
        return
    yield from _without_moving(training)


def _is_scaled_away(rate: Scalar, initial: float, kind: str) -> bool:
    """Whether a schedule that is past its warm-up leaves next to nothing of a usual rate."""
    if len(rate.values) < ENOUGH or not 0 < initial <= _of(USUAL, kind):
        return False
    past = np.argmax(rate.values) < RISING * len(rate.values)
    return bool(past and 0 < np.max(rate.values) < OF_IT * initial)


def _without_moving(training: Training) -> Iterator[Finding]:
    loss = training.scalars.get("loss")
    rates = [(training.scalars[name], kind) for name, _, kind in _groups(training) if name in training.scalars]
    if loss is None or len(loss.values) < LONG or not rates:
        return
    if any(not 0 < np.max(rate.values) <= _of(SMALL, kind) for rate, kind in rates):
        return
    travel = [_travel(one.steps, one.stats[RATIO]) for one in training.curves("update") if RATIO in one.stats]
    moved = median(np.asarray(travel))
    if moved < NOTHING or (moved < MOVED and _stands_still(loss)):
        largest = max(float(np.max(rate.values)) for rate, _ in rates)
        why = (
            f"with a learning rate of {largest:.2g} all {len(loss.values)} steps together have changed weights "
            f"by {moved:.1g} of their size"
        )
        rows = [("lr", "scalar"), ("loss", "scalar")]
        yield found("", int(loss.steps[0]), why, confidence=0.8, rows=rows, lr=largest, moved=moved)


def _travel(steps: np.ndarray, ratio: np.ndarray) -> float:
    """What steps change in all, as a share of the weights, with those that were not recorded."""
    if not len(steps):
        return 0.0
    return float(np.nansum(ratio) * (steps[-1] - steps[0] + 1) / len(steps))


def _stands_still(loss: Scalar) -> bool:
    values = loss.values[np.isfinite(loss.values)]
    tenth = max(len(values) // 10, 5)
    start, end = median(values[:tenth]), median(values[-tenth:])
    return len(values) >= LONG and abs(end) >= BETTER * abs(start) and trend(values) > FALLS


def _groups(training: Training) -> Iterator[tuple[str, float, str]]:
    """The name of the rate of each group, the rate that it was made with, and the type of its optimizer."""
    groups = [(one.type, group) for one in training.wiring.optimizers for group in one.groups]
    for number, (kind, group) in enumerate(groups):
        name = "lr" if len(groups) == 1 else f"lr/{number}"
        yield name, group.get("initial_lr", group.get("lr", 0.0)), kind


def _of(known: dict[str, float], kind: str) -> float:
    return known.get(kind, known[""])
