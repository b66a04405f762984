"""What the loss tells: it rises, stands still, is that of a guess, starts far off, or jumps."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from hookline.diagnosis.finding import Finding
from hookline.diagnosis.measures import Array, median, spread, trend
from hookline.diagnosis.registry import found, rule
from hookline.diagnosis.training import Scalar, Training

ENOUGH = 30
"""So many records of the loss are needed: single batches tell little."""
MANY, LONG = 20, 100
"""So many classes take longer to be told apart: so many records then."""
RISES = 2.0
"""Times what it was at the start."""
FALLS = -0.3
"""Spearman's correlation with the steps: a loss that falls more clearly than this is no finding."""
BETTER = 0.98
"""Of what the loss was at the start: less is progress."""
SLOW = 4
"""Times as many records where it falls, and hardly so."""
CHANCE = 0.03
"""How near the loss of a guess."""
FAR = 3.0
"""Times the loss that the classes imply, at the first step."""
SPIKE, WINDOW = 10.0, 20
"""Times the median of so many records before, and as many spreads above it."""
ENTROPY = ("cross_entropy", "nll_loss", "NllLoss", "CrossEntropy")


def loss_of(training: Training) -> Scalar | None:
    """The loss, where there is one: of several in turn (a GAN), a mean over them tells nothing."""
    one = training.scalars.get("loss")
    if one is None or len(training.wiring.losses) > 1 or len(training.wiring.optimizers) > 1:
        return None
    finite = np.isfinite(one.values)
    return Scalar(one.steps[finite], one.values[finite])


def last_operators(training: Training) -> list[str]:
    return [name for look in training.wiring.looks[:1] for name in look.operators]


def _classes(training: Training) -> int | None:
    """How many classes there are: rows of the last weight matrix, where the loss is a cross entropy."""
    if not any(word in name for name in last_operators(training)[:4] for word in ENTROPY):
        return None
    matrices = [
        (training.place(name), one.shape) for name, one in training.wiring.params.items() if len(one.shape) >= 2
    ]
    if not matrices or any(change.what == "replaced" for change in training.wiring.changes):
        return None
    return max(matrices, key=lambda pair: pair[0])[1][0]


def _thirds(values: Array) -> tuple[float, float]:
    """The loss at the start and at the end."""
    third = max(len(values) // 3, 5)
    return median(values[: max(len(values) // 10, 5)]), median(values[-third:])


@rule(
    "loss_rises",
    advice="Try a lower learning rate; look at the sign of the loss and at whether gradients are cleared.",
    wiring=True,
)
def loss_rises(training: Training) -> Iterator[Finding]:
    """The loss rises and stays above what it was at the start.

    When: thirty records of a loss that is never negative; its last third is twice the first tenth, beyond its
    own spread, and it is no spike. Why it can be wrong: losses that are weighed more and more, or that play
    against each other.
    """
    loss = loss_of(training)
    if loss is None or len(loss.values) < ENOUGH or loss.values.min() < 0:
        return
    start, end = _thirds(loss.values)
    lowest = float(loss.values[: len(loss.values) // 2].min())
    noise = spread(loss.values[: max(len(loss.values) // 10, 5)])
    if start > 0 and end > RISES * start and end > start + 5 * noise and trend(loss.values) > 0.2:
        above = loss.values > max(start + 3 * noise, 1.5 * start, lowest)
        first = len(above) - 1 - int(np.argmin(above[::-1])) + 1 if not above.all() else 0
        first = min(first, len(above) - 1)
        yield found(
            "",
            loss.steps[first],
            f"the loss rises from {start:.3g} to {end:.3g}",
            confidence=0.8,
            rows=[("loss", "scalar")],
            start=start,
            end=end,
        )


@rule(
    "loss_stuck",
    severity="note",
    advice="Can the model learn a single batch? If not, look at the learning rate and at what the loss "
    "is computed "
    "from; if so, at the data and the labels.",
    wiring=True,
)
def loss_stuck(training: Training) -> Iterator[Finding]:
    """The loss stands still from the start.

    When: thirty records; its last third is not 2 % below its first tenth, and it does not fall by rank
    correlation. Why it can be wrong: batches vary more than the loss falls, or the model had learnt all before:
    a note, and a warning where it stands still to the last digits.
    """
    loss = loss_of(training)
    if loss is None or len(loss.values) < ENOUGH:
        return
    values = loss.values
    start, end = _thirds(values)
    if start <= 0 or end < BETTER * start or end > RISES * start or trend(values) < FALLS:
        return
    flat = spread(values) <= 1e-4 * abs(median(values))
    if flat and end < BETTER * values[0]:
        return  # it fell within the first steps, as far as it goes
    yield found(
        "",
        loss.steps[0],
        f"the loss stands still: {start:.4g} at the start, {end:.4g} at the end",
        severity="warning" if flat else "note",
        confidence=0.8 if flat else 0.5,
        rows=[("loss", "scalar")],
        start=start,
        end=end,
    )


@rule(
    "loss_at_chance",
    advice="Look at whether labels belong to their inputs, at the learning rate, and at whether the "
    "input reaches the output.",
    wiring=True,
)
def loss_at_chance(training: Training) -> Iterator[Finding]:
    """The loss stays where a guess would be: the logarithm of the number of classes.

    When: the loss is a cross entropy, the last layer tells the number of classes, and over thirty records (a
    hundred where there are more than twenty classes) it stays within 3 % of their logarithm and does not fall; or
    over four times as many, whether it falls within these 3 % or not, if it is there from the first third on. Why
    it can be wrong: classes are many and data hard; it would fall at least a little.
    """
    loss, classes = loss_of(training), _classes(training)
    enough = ENOUGH if classes is None or classes <= MANY else LONG
    if loss is None or classes is None or classes < 2 or len(loss.values) < enough:
        return
    guess = math.log(classes)
    _, end = _thirds(loss.values)
    third = len(loss.values) // 3
    # A loss that falls may pass it, where these are not the classes: of pairs within a batch say.
    passes = (
        abs(median(loss.values[third : 2 * third]) - guess) > CHANCE * guess or len(loss.values) < SLOW * enough
    )
    falls = trend(loss.values) <= FALLS and passes
    if abs(end - guess) <= CHANCE * guess and not falls:
        why = f"the loss stays at {end:.3g}: a guess among {classes} classes has {guess:.3g}"
        yield found("", loss.steps[0], why, confidence=0.8, rows=[("loss", "scalar")], loss=end, guess=guess)


@rule(
    "initial_loss",
    severity="note",
    advice="Make the last layer's weights smaller, or look at the scale of what comes into it; see "
    "whether the loss is "
    "a sum where a mean was meant.",
    wiring=True,
)
def initial_loss(training: Training) -> Iterator[Finding]:
    """The first loss is far above that of a guess: the model is sure of what it can't know yet.

    When: the loss is a cross entropy, and its first value is three times the logarithm of the number of classes.
    Why it can be wrong: the model was trained before, on something else.
    """
    loss, classes = loss_of(training), _classes(training)
    if loss is None or classes is None or classes < 2 or not len(loss.values):
        return
    guess, first = math.log(classes), float(loss.values[0])
    if first > FAR * guess and first > guess + 1:
        why = f"the first loss is {first:.3g}: a guess among {classes} classes has {guess:.3g}"
        yield found("", loss.steps[0], why, confidence=0.6, rows=[("loss", "scalar")], loss=first, guess=guess)


@rule(
    "gradient_spike",
    severity="note",
    advice="Look at the batch of that step; clip gradients.",
    wiring=True,
)
def gradient_spike(training: Training) -> Iterator[Finding]:
    """The gradient norm of a step is many times that of the steps before.

    When: above ten times the median of the twenty records before, and ten spreads (MAD) above it. A warning
    where the loss stays twice as high after it as before; else a note. Why it can be wrong: one odd sample harms
    nobody.
    """
    norm = training.scalars.get("grad_norm")
    if norm is None or len(norm.values) <= WINDOW:
        return
    spikes = []
    for place in range(WINDOW, len(norm.values)):
        window = norm.values[place - WINDOW : place]
        usual = median(window)
        if norm.values[place] > max(SPIKE * usual, usual + SPIKE * spread(window)) and usual > 0:
            spikes.append((place, usual))
    if not spikes:
        return
    place, usual = spikes[0]
    step = int(norm.steps[place])
    harmed = _harmed(training, step)
    batch = training.scalars.get("batch")
    print_ = (
        float(batch.values[batch.steps == step][0]) if batch is not None and (batch.steps == step).any() else None
    )
    more = f", and {len(spikes) - 1} times more" if len(spikes) > 1 else ""
    yield found(
        "",
        step,
        f"the gradient norm is {norm.values[place]:.3g} at step {step:,}, "
        f"{norm.values[place] / usual:,.0f} times the usual{more}"
        f"{', and the loss stays higher after it' if harmed else ''}",
        severity="warning" if harmed else "note",
        confidence=0.8,
        rows=[("grad_norm", "scalar")],
        grad_norm=norm.values[place],
        usual=usual,
        batch=print_,
        spikes=[int(norm.steps[one]) for one, _ in spikes[:20]],
    )


def _harmed(training: Training, step: int) -> bool:
    """Whether the loss after a step stays twice what it was before."""
    loss = loss_of(training)
    if loss is None:
        return False
    before, after = loss.values[loss.steps < step][-WINDOW:], loss.values[loss.steps > step]
    return (
        len(before) >= 5
        and len(after) >= 5
        and median(before) > 0
        and median(after[-WINDOW:]) > 2 * median(before)
    )
