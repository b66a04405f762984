"""Every sample gets the same output: it did from the start, or the training has led there."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from hookline.diagnosis.finding import Finding
from hookline.diagnosis.measures import Array
from hookline.diagnosis.registry import found, rule
from hookline.diagnosis.training import Training

ENOUGH, LAST = 6, 2
"""So many looks at the samples are needed; so many of them are "now"."""
EQUAL = 1e-5
"""The spread over the samples, of the size of the output: no more than the order of sums makes."""
VARIES = 1e-2
"""The same of a layer that tells samples apart."""
APART = 0.4
"""The same at the start: outputs that are nearer than this have no room to fall."""
NEAR, FALLEN, NEARER = 0.2, 0.25, 0.3
"""The spread is less than the first of the size; than the second of what it was, by the size; and than the third
of what it was: an answer that is large beside its differences, a year say, has not come nearer."""


@rule(
    "collapsed",
    advice="What keeps outputs apart? Add negatives, a stop-gradient with a predictor, or a term for variance; "
    "look for a mean over the batch, and for a softmax over one number.",
)
def collapsed(training: Training) -> Iterator[Finding]:
    """The model gives every sample of a batch nearly the same output, while what comes in differs.

    When: at each look the outputs for all samples are equal to rounding; or the spread over the samples is at the
    last looks less than 20 % of the outputs' size and less than a quarter of what that share was at the start, and
    it has become smaller by itself, too. A single number for each sample, a value say, may come to be that of all,
    and is left out. Only what ends in the model's output counts: positions and queries are
    the same for all samples by design. Why it can be wrong: the right answer hardly depends on the input.
    """
    looks = {name: np.asarray(one.spreads) for name, one in training.wiring.modules.items() if one.spreads}
    looks = {name: one for name, one in looks.items() if len(one) >= ENOUGH and np.isfinite(one).all()}
    if not any(_share(one)[-LAST:].min() > VARIES for one in looks.values()):
        return
    ends = [name for name in looks if name == ""] or sorted(looks, key=training.place)[-1:]
    for end in ends:
        steps, share = looks[end][:, 0], _share(looks[end])
        if (share < EQUAL).all():
            among = [name for name, one in looks.items() if (_share(one) < EQUAL).all()]
            site = _first(training, among, end, looks)
            why = "its output is the same for every sample of a batch, whatever comes in"
            yield found(site, steps[0], why, confidence=0.9, looks=len(share), share=float(share[-1]))
        elif _has_fallen(looks[end]) and not _is_number(training):
            among = [name for name, one in looks.items() if _has_fallen(one)]
            site = _first(training, among, end, looks)
            first = int(np.argmax(share < NEAR))
            why = (
                f"every sample gets nearly the same output: they differ by {share[-1]:.1%} of its size, and by "
                f"{share[0]:.0%} at the start"
            )
            yield found(site, steps[first], why, confidence=0.8, looks=len(share), share=float(share[-1]))


def _share(look: Array) -> Array:
    """The spread over the samples as a share of the size, at each look."""
    found: Array = look[:, 1] / np.maximum(look[:, 2], 1e-30)
    return found


def _has_fallen(look: Array) -> bool:
    share, spread = _share(look), look[:, 1]
    now = slice(-LAST, None)
    return bool(
        (share[now] < NEAR).all()
        and share[:LAST].max() > APART
        and share[now].max() < FALLEN * share[:LAST].max()
        and spread[now].max() < NEARER * spread[:LAST].max()
    )


def _is_number(training: Training) -> bool:
    """Whether the last layer has one unit."""
    matrices = [(training.place(name), one.shape) for name, one in training.wiring.params.items() if one.shape[1:]]
    return bool(matrices) and max(matrices, key=lambda pair: pair[0])[1][0] == 1


def _first(training: Training, among: list[str], end: str, looks: dict[str, Array]) -> str:
    """The first module from which on all are so: after the last one that still tells samples apart."""
    told_apart = [training.place(name) for name in looks if name not in among]
    last = max(told_apart, default=-1)
    after = [name for name in among if training.place(name) > last]
    return min(after or [end], key=training.place)
