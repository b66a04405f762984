"""Gradients as the optimizer gets them: not cleared, clipped to nothing, added up without being divided."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from hookline.diagnosis.finding import Finding
from hookline.diagnosis.measures import RECENT, median
from hookline.diagnosis.registry import found, rule
from hookline.diagnosis.training import Scalar, Training

STALE = 0.5
"""The share of parameters that still have the gradients of the step before."""
NEARLY_ALL = 0.8
"""Of the records."""
NOTHING, OF_IT = 1e-3, 1e-2
"""Clipped to a norm below the one, and to less than the other of what it was: nothing is left."""
ENOUGH = 3
MANY = 4
"""Fewer backwards for one step may be several losses: of real and made samples, of two heads."""


@rule(
    "zero_grad_missing",
    severity="error",
    advice="Call optimizer.zero_grad() once for each step, before backward.",
    wiring=True,
)
def zero_grad_missing(training: Training) -> Iterator[Finding]:
    """Gradients of the step before are still there when the next backward begins: they add up over all steps.

    When: at nearly all steps, in most of the parameters. Why it can be wrong: with two losses or two optimizers
    in turn (a GAN), one backward leaves gradients in parts that another one clears; there it has to be all of the
    parameters at all records.
    """
    stale = training.scalars.get("stale_grads")
    if stale is None:
        return
    several = len(training.wiring.losses) > 1 or len(training.wiring.optimizers) > 1
    kept = stale.values >= (1.0 if several else STALE)
    if several and not kept.all():
        return
    later = kept[1:] if len(kept) and not kept[0] else kept
    if int(kept.sum()) < ENOUGH or not len(later) or later.mean() < NEARLY_ALL:
        return
    yield found(
        "",
        stale.steps[np.argmax(kept)],
        "gradients are never cleared: those of each step are added to all before it",
        rows=[("stale_grads", "scalar")],
        share=median(stale.values[kept]),
        records=int(kept.sum()),
    )


@rule(
    "clipped_to_nothing",
    severity="error",
    advice="Look at the bound of clip_grad_norm_; with a GradScaler call scaler.unscale_(optimizer) "
    "before clipping.",
    wiring=True,
)
def clipped_to_nothing(training: Training) -> Iterator[Finding]:
    """Clipping leaves nothing of the gradients.

    When: the norm after clipping is below 0.001 and a hundredth of what it was, over the last records. Why it
    can be wrong: an optimizer that divides by the size of gradients (Adam) learns all the same.
    """
    whole, clipped = training.scalars.get("grad_norm"), training.scalars.get("grad_norm_clipped")
    if whole is None or clipped is None or len(clipped.values) < ENOUGH:
        return
    size = np.interp(clipped.steps, whole.steps, whole.values)
    nothing = (clipped.values < NOTHING) & (clipped.values < OF_IT * size)
    if nothing[-RECENT:].mean() < NEARLY_ALL or nothing.mean() < STALE:
        return
    left = median(clipped.values[nothing])
    yield found(
        "",
        clipped.steps[np.argmax(nothing)],
        f"gradients of norm {median(size[nothing]):.2g} are clipped to {left:.2g}: hardly anything is "
        "left of them",
        severity="error" if left == 0 else "warning",
        rows=[("grad_norm", "scalar"), ("grad_norm_clipped", "scalar")],
        grad_norm=median(size[nothing]),
        clipped=left,
    )


@rule(
    "accumulation_not_divided",
    advice="Divide the loss by the number of batches that one step accumulates.",
    wiring=True,
)
def accumulation_not_divided(training: Training) -> Iterator[Finding]:
    """Several backwards for one step, and the loss is not divided by their number: gradients are so many times
    as large.

    When: one place calls backward, the same number of times at all steps without clearing what is there, and the
    last operator of the loss is no division or sum. From four times on it is a warning, below a note. Why it can
    be wrong: the learning rate takes it into account.
    """
    times, wiring = training.scalars.get("accumulated"), training.wiring
    if times is None or len(wiring.losses) != 1 or not wiring.looks or len(wiring.optimizers) != 1:
        return
    number = _constant(times)
    look = wiring.looks[-1]
    if (
        number is None
        or number < 2
        or look.divided is not False
        or any("sum" in one.lower() for one in look.operators[:1])
    ):
        return
    yield found(
        "",
        times.steps[0],
        f"the gradients of {number} batches are added up for each step, and the loss is not divided by {number}",
        severity="warning" if number >= MANY else "note",
        confidence=0.6,
        line=wiring.losses[0].line,
        rows=[("accumulated", "scalar")],
        backwards=number,
    )


def _constant(one: Scalar) -> int | None:
    usual = median(one.values)
    is_usual = len(one.values) >= ENOUGH and np.mean(one.values == usual) >= NEARLY_ALL
    return int(usual) if is_usual else None
