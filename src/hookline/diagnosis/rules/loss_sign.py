"""Losses that are made small and are to be large, or the other way round."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import numpy as np

from hookline.diagnosis.finding import Finding
from hookline.diagnosis.measures import Array, median, trend
from hookline.diagnosis.registry import found, rule
from hookline.diagnosis.rules.losses import ENOUGH, ENTROPY, FALLS, last_operators, loss_of
from hookline.diagnosis.training import Training

UNBOUNDED = 20.0
"""Times its size at the start, below zero."""
STANDARD = (*ENTROPY, "mse_loss", "MseLoss", "binary_cross_entropy", "BinaryCrossEntropy", "l1_loss", "SmoothL1")
AS_IT_IS = ("Mean", "Sum", "Gather", "Index", "Squeeze", "Unsqueeze", "View", "Select", "Diagonal")
"""Operators that leave the sign of a log_softmax as it is."""


@rule(
    "loss_sign",
    severity="error",
    advice="Look at the sign: is what you minimise what is to be small? A likelihood or a reward is to be large.",
    wiring=True,
)
def loss_sign(training: Training) -> Iterator[Finding]:
    """The loss has the wrong sign: the training makes things worse.

    When: the last operators of the loss are a minus and a cross entropy, squared error or the like, and it is
    negative and falls; or nll_loss gives less than 0; or it is a mean of log_softmax without a minus, or a score
    of overlap (Dice, IoU) that is not taken from 1, and falls; or it is negative, twenty times its size at the
    start, and falls ever faster, which is a warning. Why it can be wrong: an adversary is trained, which is to
    make it worse.
    """
    loss = loss_of(training)
    if loss is None or len(loss.values) < 5:
        return
    names = last_operators(training)[:3]
    turned = any(name.lower().startswith("neg") for name in names)
    standard = any(word in name for name in names for word in STANDARD)
    line = training.wiring.losses[0].line if training.wiring.losses else ""
    end = median(loss.values[-5:])
    if turned and standard and np.mean(loss.values < 0) > 0.8 and trend(loss.values) < 0:
        why = f"the loss is {end:.3g} and falls: it is a {names[-1]} with a minus in front"
        yield found("", loss.steps[0], why, line=line, rows=[("loss", "scalar")], confidence=0.9, operators=names)
    elif names[:1] == ["NllLoss"] and "LogSoftmax" not in last_operators(training) and (loss.values < 0).all():
        why = f"the loss is {end:.3g}, below 0: nll_loss wants logarithms, and what it is given is none"
        advice = "Give it log_softmax of the output, or give the raw output to cross_entropy."
        rows = [("loss", "scalar")]
        yield found("", loss.steps[0], why, line=line, rows=rows, confidence=0.95, advice=advice, operators=names)
    elif (score := _score(training)) and trend(loss.values) < FALLS and loss.values.max() <= 1:
        why = f"the loss is {score} and falls to {end:.3g}: it is to be large where the model is right"
        yield found("", loss.steps[0], why, line=line, rows=[("loss", "scalar")], confidence=0.9, operators=names)
    elif _is_unbounded(loss.values):
        start = median(loss.values[:5])
        below = np.flatnonzero(loss.values < -max(abs(start), 1.0))
        why = f"the loss falls without end: {start:.3g} at the start, {end:.3g} now, and ever faster"
        rows, step = [("loss", "scalar")], loss.steps[below[0]]
        yield found("", step, why, line=line, rows=rows, severity="warning", confidence=0.8, end=end)


def _score(training: Training) -> str:
    """What is minimised though it is to be large, in words; "" where nothing tells of that."""
    names = last_operators(training)
    if "LogSoftmax" in names and all(one in AS_IT_IS for one in names[: names.index("LogSoftmax")]):
        return "a mean of log_softmax without a minus"
    is_overlap = any(look.is_overlap for look in training.wiring.looks[:1])
    return "a score of overlap (Dice, IoU)" if is_overlap else ""


def _is_unbounded(values: Array) -> bool:
    """Whether a loss falls as fast at its end as before, far below zero."""
    if len(values) < ENOUGH:
        return False
    third = len(values) // 3
    thirds = [median(values[place : place + 5]) for place in (0, third, 2 * third)] + [median(values[-5:])]
    falls = [before - now for before, now in pairwise(thirds)]
    return thirds[-1] < -UNBOUNDED * max(abs(thirds[0]), 1.0) and falls[-1] >= max(falls[:-1]) > 0
