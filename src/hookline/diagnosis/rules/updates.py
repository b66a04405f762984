"""What a step does to the weights: nothing, too little, too much."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from hookline.diagnosis.finding import Finding
from hookline.diagnosis.measures import Array, recent, since
from hookline.diagnosis.registry import found, rule
from hookline.diagnosis.training import Seen, Training
from hookline.rows import RATIO

STILL = 1e-7
"""A step changes weights by less than this share of their size: less than fp32 can tell apart."""
LARGE = 0.3
"""A step that changes weights by this share of their size leaves little of what was learnt."""
ENOUGH, LONG = 5, 10
FALLEN, FLAT = 0.5, 1e-3
"""Of the loss at the start, and of the largest gradient: what is below both is at a minimum."""
BETTER = 0.95
"""Of the first loss."""
DECAYED = 0.01
"""Of the largest learning rate: a schedule has come to its end."""


def _moving(training: Training) -> dict[str, list[Seen]]:
    """The updates of each module, of parameters with more than a few numbers."""
    found: dict[str, list[Seen]] = {}
    for one in training.curves("update"):
        if RATIO in one.stats and len(one.steps) >= ENOUGH:
            found.setdefault(training.owner(one.site), []).append(one)
    return found


def _is_over(training: Training) -> bool:
    """Whether a schedule has brought the learning rate down to nothing, as it should at the end."""
    rates = [one.values for name, one in training.scalars.items() if name == "lr" or name.startswith("lr/")]
    return any(len(one) and 0 <= one[-1] < DECAYED * np.max(one) for one in rates)


def _is_at_minimum(training: Training) -> bool:
    """Whether the loss has fallen as far as it goes."""
    loss, norm = training.scalars.get("loss"), training.scalars.get("grad_norm")
    if loss is None or norm is None or min(len(loss.values), len(norm.values)) < 2 * ENOUGH:
        return False
    fell = recent(loss.values) < FALLEN * np.max(loss.values[:ENOUGH])  # LBFGS is there after a step or two
    return bool(fell and recent(norm.values) < FLAT * np.max(norm.values))


def _ratios(some: list[Seen]) -> tuple[Array, Array]:
    """The largest ratio of a module's parameters, over the steps that all have."""
    shortest = min(some, key=lambda one: len(one.steps))
    common = [one for one in some if len(one.steps) == len(shortest.steps)] or [shortest]
    with np.errstate(invalid="ignore"):
        return shortest.steps, np.nanmax([_ratio(one) for one in common], axis=0)


def _ratio(one: Seen, spoilt: float = 1.0) -> Array:
    """The ratio; of a weight that is zero there is none: the update itself tells whether it moves."""
    found: Array = np.where(np.isnan(one.stats[RATIO]), one.stats["absmax"], one.stats[RATIO])
    bad = one.stats["nan"] + one.stats["inf"] > 0  # what is NaN is not still, nor is it large
    return np.where(bad, spoilt, np.nan_to_num(found, nan=0.0, posinf=1.0))


@rule(
    "still",
    advice="Is it meant to be frozen? If not, look at its gradient, the learning rate of its group and "
    "weight decay.",
)
def still(training: Training) -> Iterator[Finding]:
    """Steps of the optimizer leave all parameters of a layer as they are.

    When: no parameter of the module changes by more than a ten-millionth, over the last five records and nine of
    ten since. A bias in front of a batch norm may stand still as long as the weight beside it moves; a learning
    rate that a schedule has brought to nothing explains it, and so does a loss at its minimum: it has fallen, and
    the gradient is a thousandth of what it was. Why it can be wrong: the layer is done with learning.
    """
    if _is_over(training):
        return
    found_minimum = _is_at_minimum(training)
    idle: dict[str, tuple[Array, Array, int]] = {}
    moving = _moving(training)
    for module, some in moving.items():
        steps, ratio = _ratios(some)
        if all(one.stats["count"][-1] <= 1 for one in some):
            continue
        first = since(ratio < STILL)
        if found_minimum and first:
            continue
        if first is not None and len(steps) - first >= ENOUGH:
            idle[module] = steps, ratio, first
    if len(idle) == len(moving) > 1:
        steps, ratio, first = min(idle.values(), key=lambda item: item[0][item[2]])
        ratios = [recent(item[1]) for item in idle.values()]
        why = f"steps change no layer by more than {max(ratios):.1g} of its size: nothing is learnt"
        yield found("", steps[first], why, severity="error", confidence=0.9, rows=_rows(moving), ratio=max(ratios))
        return
    for module, (steps, ratio, first) in idle.items():
        now = recent(ratio)
        why = f"a step changes it by {now:.1g} of its size" if now else "steps leave its parameters as they are"
        rows = [(one.site, "update") for one in moving[module]]
        yield found(module, steps[first], why, confidence=0.8, rows=rows, ratio=now)


@rule(
    "update_ratio",
    advice="About 0.001 of the weights' size is common: change the learning rate, of this layer or of all.",
)
def update_ratio(training: Training) -> Iterator[Finding]:
    """Steps change weights by far too much, or by next to nothing.

    When: over the last ten records, a step changes the weights of the median layer by 30 % of their size or
    more; or one layer so, and 30 times as much as the others; or it did so at the first five records, and the loss
    is no better in the end than at the first. Too little: by less than a millionth, all layers,
    while the learning rate is not at the end of a schedule. Why it can be wrong: weights that are zero at the
    start change by a lot at first; small weights and rows of embeddings do so for longer.
    """
    matrices = {
        one.site: one
        for one in training.curves("update")
        if RATIO in one.stats
        and len(one.steps) >= LONG
        and one.stats["count"][-1] >= 16
        and _is_matrix(training, one)
    }
    if not matrices:
        return
    now = {site: recent(_ratio(one, 0.0)[-LONG:]) for site, one in matrices.items()}
    middle = float(np.median(list(now.values())))
    every = np.median([_ratio(one, 0.0)[-LONG:] for one in matrices.values() if len(one.steps) >= LONG], axis=0)
    rows = [(site, "update") for site in list(matrices)[:8]]
    if middle >= LARGE and (every >= LARGE).mean() >= 0.8:
        one = max(matrices.values(), key=lambda other: now[other.site])
        first = since(_ratio(one, 0.0) >= LARGE, 0.6) or 0
        why = f"a step changes the weights by {middle:.0%} of their size: what was learnt is lost at once"
        yield found("", one.steps[first], why, confidence=0.8, rows=rows, ratio=middle, too="large")
        return
    at_first = float(np.median([np.median(_ratio(one, 0.0)[:ENOUGH]) for one in matrices.values()]))
    if at_first >= LARGE and _is_no_better(training):
        first = min(int(one.steps[0]) for one in matrices.values())
        why = (
            f"the first steps change the weights by {at_first:.0%} of their size, and the loss is no better since"
        )
        yield found("", first, why, confidence=0.8, rows=rows, ratio=at_first, too="large")
        return
    for site, one in matrices.items():
        ratio = _ratio(one, 0.0)
        others = [value for other, value in now.items() if other != site]
        if now[site] >= LARGE and others and now[site] >= 30 * np.median(others) > 0:
            at = since(ratio >= LARGE, 0.6)
            if at is not None:
                much = f"{now[site]:.0%} of its size, {now[site] / np.median(others):,.0f} times as much as others"
                yield found(
                    site,
                    one.steps[at],
                    f"a step changes {site} by {much}",
                    confidence=0.6,
                    rows=[(site, "update")],
                    ratio=now[site],
                    too="large",
                )
    if len(matrices) > 1 and STILL <= max(now.values()) < 1e-6 and not _is_over(training):
        first = min(int(one.steps[0]) for one in matrices.values())
        why = (
            f"a step changes the weights by {max(now.values()):.1g} of their size: it would take millions of steps"
        )
        yield found("", first, why, confidence=0.7, rows=rows, ratio=max(now.values()), too="small")


def _is_no_better(training: Training) -> bool:
    """Whether the loss of the last records is that of the first one, or higher."""
    loss = training.scalars.get("loss")
    if loss is None or len(loss.values) < LONG or loss.values[0] <= 0:
        return False
    return not recent(loss.values) < BETTER * loss.values[0]


def _is_matrix(training: Training, one: Seen) -> bool:
    known = training.wiring.params.get(one.site)
    return len(known.shape) >= 2 if known is not None and known.shape else one.site.endswith("weight")


def _rows(moving: dict[str, list[Seen]]) -> list[tuple[str, str]]:
    return [(one.site, "update") for some in moving.values() for one in some][:8]
