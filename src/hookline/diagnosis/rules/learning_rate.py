"""Learning rates of zero, and rates that jump."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from hookline.diagnosis.finding import Finding
from hookline.diagnosis.measures import Array, recent, since
from hookline.diagnosis.registry import found, rule
from hookline.diagnosis.training import Training
from hookline.rows import RATIO

NOTHING = 1e-14
"""A rate below this moves no fp32 weight."""
ENOUGH = 3
AT_THE_END = 0.1
"""A schedule may reach zero in the last tenth of a training."""
NEXT_TO, TOO_LONG = 1e-3, 0.3
"""Less than so much of the largest rate, for so much of the training."""
LONG, NEARLY_ALL, BARELY = 30, 0.95, 1e-5
"""Records, the share of them at which the rate rises, and what a step changes of the weights' size."""
TAKEN = 0.02
"""The share of the weights that weight decay takes at a step."""
COUPLED = 0.5
"""Weight decay of an optimizer that takes it for a part of the gradient: more than any gradient is beside it."""
SHRINKING = ("SGD", "AdamW", "Lion", "Muon", "NAdam")
JUMP, SETTLED = 10.0, 0.1
"""So many times as large from one record to the next, from a rate that was this share of the largest or more."""
HARM, WINDOW = 2.0, 5
"""The loss is so many times what it was, by the median of so many records on either side."""


@rule(
    "lr_zero",
    severity="error",
    advice="Look at the scheduler: it may be stepped for every batch where it counts epochs, its warm-up "
    "may never end, "
    "or it is over before the training is.",
    wiring=True,
)
def lr_zero(training: Training) -> Iterator[Finding]:
    """The learning rate is 0 from a step on, or next to it, so that nothing is learnt any more.

    When: 0 until the end, for three recorded steps and more than a tenth of them; or a thousandth of the largest
    rate for a third of the training. Warm-up from 0 and a schedule that ends at 0 are healthy. Why it can be
    wrong: one of several groups was given 0 on purpose, to freeze it; that is a warning.
    """
    rates = {name: one for name, one in training.scalars.items() if name == "lr" or name.startswith("lr/")}
    zero = {name: first for name, one in rates.items() if (first := _zero_from(one.values)) is not None}
    every = len(zero) == len(rates)
    for name, first in zero.items():
        one = rates[name]
        step = int(one.steps[first])
        largest, now = float(np.max(one.values)), float(one.values[-1])
        what = "the learning rate" if name == "lr" else f"the learning rate of group {name.partition('/')[2]}"
        when = (
            "at every step" if largest < NOTHING else f"from step {step:,} on, where it was {largest:.2g} before"
        )
        is_zero = now < NOTHING
        yield found(
            "" if every else _group_site(training, name),
            step,
            f"{what} is {0 if is_zero else f'only {now:.1g}'} {when}: steps change "
            f"{'' if is_zero else 'next to '}nothing",
            severity="error" if every and is_zero else "warning",
            confidence=(1.0 if is_zero else 0.9) if every else 0.7,
            rows=[(name, "scalar")],
            records=len(one.values) - first,
            lr=now,
        )
        if every:
            return


@rule(
    "lr_warmup",
    advice="Look at the number of warm-up steps: is it more than the steps of the training?",
    wiring=True,
)
def lr_warmup(training: Training) -> Iterator[Finding]:
    """The learning rate rises until the end of the training, and is so small still that nothing is learnt.

    When: thirty records; the rate rises at nearly all of them, and a step changes weights by less than a
    hundred-thousandth of their size at the end. Why it can be wrong: the training was stopped in its warm-up.
    """
    rate = training.scalars.get("lr", training.scalars.get("lr/0"))
    if rate is None or len(rate.values) < LONG or rate.values[-1] <= 0:
        return
    moved = [
        recent(one.stats[RATIO]) for one in training.curves("update") if RATIO in one.stats and len(one.steps)
    ]
    rises = float(np.mean(np.diff(rate.values) > 0))
    if rises < NEARLY_ALL or not moved or not np.nanmedian(moved) < BARELY:
        return
    why = (
        f"the learning rate rises until the end and is {rate.values[-1]:.2g} there: a step changes weights by "
        f"{np.nanmedian(moved):.1g} of their size"
    )
    yield found("", int(rate.steps[0]), why, confidence=0.8, rows=[("lr", "scalar")], lr=float(rate.values[-1]))


@rule(
    "lr_negative",
    severity="error",
    advice="Look at what sets the learning rate: a schedule that goes on after its end, or a sign.",
    wiring=True,
)
def lr_negative(training: Training) -> Iterator[Finding]:
    """The learning rate is below 0: each step makes the loss larger.

    When: at three records and more. Why it can be wrong: the loss is one that is to be made large.
    """
    for name, one in training.scalars.items():
        below = one.values < 0
        if (name == "lr" or name.startswith("lr/")) and below.sum() >= ENOUGH:
            step, rate = int(one.steps[np.argmax(below)]), float(one.values[below][-1])
            site = "" if name == "lr" else _group_site(training, name)
            why = f"the learning rate is {rate:.2g} from step {step:,} on: steps go up where they should go down"
            yield found(site, step, why, confidence=0.95, rows=[(name, "scalar")], lr=rate)
            return


@rule(
    "decay_large",
    advice="Divide weight_decay by a hundred or more; 0.01 is usual for AdamW, 0.0001 for SGD.",
    wiring=True,
)
def decay_large(training: Training) -> Iterator[Finding]:
    """Weight decay takes away more of the weights at each step than gradients can give.

    When: the learning rate times the weight decay is 0.02 or more, over the last records, in an optimizer that
    takes that share of the weights (SGD, AdamW and the like); or weight decay is 0.5 or more in one that adds it
    to the gradient and divides by its size (Adam). Why it can be wrong: a schedule is at its peak.
    """
    kinds = [one.type for one in training.wiring.optimizers]
    if kinds and not all(one.startswith(SHRINKING) for one in kinds):
        yield from _coupled_decay(training)
        return
    if not kinds:
        return
    for name, decay in training.scalars.items():
        kind, _, number = name.partition("/")
        rate = training.scalars.get(f"lr/{number}" if number else "lr")
        if kind != "weight_decay" or rate is None or len(rate.values) < ENOUGH:
            continue
        if len(rate.values) != len(decay.values):
            continue
        share = rate.values * decay.values
        if recent(share) < TAKEN:
            continue
        first = int(np.argmax(share >= TAKEN))
        why = (
            f"weight decay takes {recent(share):.0%} of the weights at each step: {recent(decay.values):.2g} "
            f"times a learning rate of {recent(rate.values):.2g}"
        )
        site = "" if name == "weight_decay" else _group_site(training, f"lr/{number}")
        yield found(
            site, int(rate.steps[first]), why, confidence=0.9, rows=[(name, "scalar")], share=recent(share)
        )
        return


def _coupled_decay(training: Training) -> Iterator[Finding]:
    for name, decay in training.scalars.items():
        one = training.wiring.optimizers[0]
        if name == "weight_decay" and one.type == "Adam" and len(training.wiring.optimizers) == 1:
            much = recent(decay.values)
            if len(decay.values) >= ENOUGH and much >= COUPLED:
                why = f"weight decay of {much:.2g} is a part of Adam's gradient, and all that is left of it"
                yield found("", int(decay.steps[0]), why, confidence=0.8, rows=[(name, "scalar")], decay=much)


@rule(
    "lr_jump",
    severity="error",
    advice="Look at what sets the learning rate at that step: a scheduler, a new parameter group, a value that "
    "was meant for something else.",
    wiring=True,
)
def lr_jump(training: Training) -> Iterator[Finding]:
    """The learning rate is many times larger from one step to the next, and the loss is worse after it.

    When: ten times or more, from a rate that was no warm-up and no end of a cycle, and the loss doubles or is no
    number any more within five records. Why it can be wrong: the data became harder at the very same step.
    """
    loss = training.scalars.get("loss")
    if loss is None:
        return
    for name, one in training.scalars.items():
        if name != "lr" and not name.startswith("lr/"):
            continue
        for place in _jumps(one.values):
            step = int(one.steps[place])
            at = int(np.searchsorted(loss.steps, step))
            before, after = loss.values[max(0, at - WINDOW) : at], loss.values[at + 1 : at + 1 + WINDOW]
            if not len(before) or not len(after) or not _is_harm(before, after):
                continue
            was, now = float(one.values[place - 1]), float(one.values[place])
            yield found(
                "" if name == "lr" else _group_site(training, name),
                step,
                f"the learning rate goes from {was:.2g} to {now:.2g} at step {step:,}, and the loss from "
                f"{np.median(before):.3g} to {np.median(after):.3g}",
                confidence=0.95,
                rows=[(name, "scalar"), ("loss", "scalar")],
                lr_before=was,
                lr=now,
            )
            return


def _jumps(values: Array) -> list[int]:
    """The records at which a settled rate is many times the one before."""
    return [
        place
        for place in range(1, len(values))
        if values[place - 1] > SETTLED * np.max(values[:place]) and values[place] >= JUMP * values[place - 1]
    ]


def _is_harm(before: Array, after: Array) -> bool:
    if not np.isfinite(after).all():
        return True
    was, now = float(np.median(before)), float(np.median(after))
    return now > was + (HARM - 1) * abs(was)


def _zero_from(values: Array) -> int | None:
    """The record from which on a rate is 0, or next to it, for too long."""
    found = []
    first = since(np.abs(values) < NOTHING, 1.0)
    if first is not None:
        zeros = len(values) - first
        if zeros >= ENOUGH and (first == 0 or zeros > max(ENOUGH, AT_THE_END * len(values))):
            found.append(first)
    if len(values) and np.max(values) > 0:
        first = since(np.abs(values) < NEXT_TO * np.max(values), 1.0)
        is_long = first is not None and len(values) - first > TOO_LONG * len(values)
        if first and is_long and abs(values[-1]) < NEXT_TO * np.median(values[:first]):  # a peak is no usual rate
            found.append(first)
    return min(found, default=None)


def _group_site(training: Training, name: str) -> str:
    """The module that has all parameters of a numbered group."""
    number, groups = int(name.partition("/")[2]), []
    for place, one in enumerate(training.wiring.optimizers):
        groups += [f"{place}/{group}" for group in range(len(one.groups))]
    if number >= len(groups):
        return ""
    params = training.wiring.params
    held = [param for param, one in params.items() if groups[number] in one.groups]
    return next(iter(training.together(held, among=params)), "")
