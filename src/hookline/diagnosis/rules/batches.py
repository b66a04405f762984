"""Batches: the same over and over, or of large numbers."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from hookline.diagnosis.finding import Finding
from hookline.diagnosis.measures import Array
from hookline.diagnosis.registry import found, rule
from hookline.diagnosis.training import Scalar, Training

ENOUGH = 10
"""So many records with the same batch."""
BEGUN = 5
"""So many where a DataLoader is begun anew at each step."""
LONG, UNLEARNT = 30, 0.95
"""After so many records a loss on one batch is below this share of what it was."""
LARGE = 30.0
"""The size of inputs; pixels from 0 to 255 have about 130."""
STAYS = 10
"""Records in a row with one batch, on average, while there are several."""
USUAL = 0.9
"""The share of records."""


@rule(
    "constant_batch",
    severity="note",
    advice="Look at the loop and the sampler: next(iter(loader)) gives the first batch each time.",
    wiring=True,
)
def constant_batch(training: Training) -> Iterator[Finding]:
    """The model gets the same batch at every step, to the bit.

    When: ten records and more, until the end. It is a warning where batches varied before, or where a DataLoader
    of several batches is begun anew at each step (five records are enough then), or where the loss does not even
    fall on that one batch, or where each of several stays for ten records or more. Else it is a note, since a
    small data set may be one batch. Why it can be wrong: one batch is trained on purpose, to see whether the model
    can learn it.
    """
    batch = training.scalars.get("batch")
    anew = batch is not None and _is_begun_anew(training, batch)
    enough = BEGUN if anew else ENOUGH
    if batch is None or len(batch.values) < enough:
        return
    runs = _lengths(batch.values)
    if len(runs) > 1 and np.mean(runs) >= STAYS:
        why = f"the batch stays the same for {np.mean(runs):.0f} records at a time: {len(runs)} batches in all"
        rows = [("batch", "scalar")]
        yield found("", int(batch.steps[0]), why, confidence=0.7, severity="warning", rows=rows, batches=len(runs))
        return
    known, counts = np.unique(batch.values, return_counts=True)
    same = batch.values == (known[counts.argmax()] if counts.max() >= USUAL * counts.sum() else batch.values[-1])
    other = np.flatnonzero(~same)
    first = 0 if same.mean() >= USUAL else int(other[-1]) + 1  # a few others are those of an evaluation
    if len(batch.values) - first < enough:
        return
    step = int(batch.steps[first])
    in_vain = _is_in_vain(training.scalars.get("loss"))
    varied = first >= 2 and len(np.unique(batch.values[:first])) > 1
    told = ", and the loss does not fall on it either" if in_vain else ""
    why = f"every batch from step {step:,} on is the same to the bit{told}"
    if anew:
        why += ": a DataLoader is begun anew at each step, and its first batch is all that is ever used"
    yield found(
        "",
        step,
        why,
        severity="warning" if varied or anew or in_vain else "note",
        confidence=0.9 if varied or anew else 0.6 if in_vain else 0.5,
        rows=[("batch", "scalar")],
        records=len(batch.values) - first,
    )


def _is_in_vain(loss: Scalar | None) -> bool:
    """Whether a loss, which is above 0, never fell: by the medians of ten records each."""
    if loss is None or len(loss.values) < LONG or not np.isfinite(loss.values).all():
        return False
    medians = [float(np.median(some)) for some in np.array_split(loss.values, len(loss.values) // ENOUGH)]
    return min(medians) > UNLEARNT * max(medians[0], float(loss.values[0])) > 0


def _lengths(values: Array) -> Array:
    """How many records in a row have the same value.

    >>> _lengths(np.asarray([7, 7, 7, 5, 5, 7])).tolist()
    [3, 2, 1]
    """
    ends = np.flatnonzero(np.diff(values) != 0) + 1
    return np.diff([0, *ends, len(values)])


def _is_begun_anew(training: Training, batch: Scalar) -> bool:
    """Whether a DataLoader is begun at nearly every step."""
    begun = training.scalars.get("loaders_begun")
    return begun is not None and len(np.intersect1d(begun.steps, batch.steps)) >= USUAL * len(batch.steps)


@rule(
    "input_scale",
    severity="note",
    advice="Bring the inputs to about mean 0 and standard deviation 1, or put a norm in front.",
    wiring=True,
)
def input_scale(training: Training) -> Iterator[Finding]:
    """The numbers that come into the model are large: pixels from 0 to 255, say.

    When: the root of their mean square is 30 or more at most records, and the first layer is no norm. By itself
    it is a note; where layers die or values grow at the first steps, it is the cause. Why it can be wrong: forward
    scales them.
    """
    size = training.scalars.get("batch_rms")
    if size is None or len(size.values) < BEGUN or np.median(size.values) < LARGE:
        return
    first = min(training.leaves, key=training.place, default="")
    if "Norm" in training.type_of(first):
        return
    why = f"the numbers that come into the model are large: {np.median(size.values):.3g} (RMS)"
    rows = [("batch_rms", "scalar")]
    yield found("", int(size.steps[0]), why, confidence=0.6, rows=rows, rms=float(np.median(size.values)))
