"""Causes: findings that follow from one another become one, with the cause on top.

A dead ReLU leaves everything before it without a gradient, and what has no gradient stands still: that is one
mistake, and is told once. `FOLLOWS` says what may follow from what, and where. A cause is never later than what
follows from it, save by a few records: some rules need several to be sure.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from hookline.diagnosis.finding import SEVERITIES, Finding
from hookline.diagnosis.training import Training

Near = Callable[[Finding, Finding, Training], bool]
"""Whether a finding is where the consequences of another are: (cause, consequence, training)."""
LATE = 10
"""A consequence may be seen so many records before its cause: rules need more or fewer of them."""


def anywhere(cause: Finding, other: Finding, training: Training) -> bool:
    """Wherever it is."""
    return True


def same(cause: Finding, other: Finding, training: Training) -> bool:
    """In the same module, above it, or below it; the model itself is above all."""
    return _within(training.owner(cause.site), training.owner(other.site)) or _within(
        training.owner(other.site), training.owner(cause.site)
    )


def before(cause: Finding, other: Finding, training: Training) -> bool:
    """In the same module or one that ran before it: where its gradients go."""
    return same(cause, other, training) or training.place(other.site) <= training.place(cause.site)


def after(cause: Finding, other: Finding, training: Training) -> bool:
    """In the same module or one that ran after it: where its outputs go."""
    return same(cause, other, training) or training.place(other.site) >= training.place(cause.site)


LOSS = ("loss_stuck", "loss_at_chance", "loss_rises", "initial_loss", "collapsed")
IDLE = ("still", "vanishing", "update_ratio", "updates_lost", "zero_gradient")
WILD = ("exploding", "near_overflow", "nan_origin", "gradient_spike", "loss_rises", "update_ratio", "loss_stuck")

FOLLOWS: Mapping[str, tuple[tuple[Near, tuple[str, ...]], ...]] = {
    "loss_detached": (
        (anywhere, ("no_gradient", "optimizer_without_gradients", "not_in_optimizer", *IDLE, *LOSS)),
    ),
    "loss_ignores_input": ((anywhere, ("no_gradient", "constant_output", *IDLE, *LOSS)),),
    "gradients_wiped": (
        (
            anywhere,
            ("no_gradient", "optimizer_without_gradients", "never_called", "zero_grad_missing", *IDLE, *LOSS),
        ),
    ),
    "in_vain": ((anywhere, ("no_gradient", "optimizer_without_gradients", "loss_ignores_input", *IDLE, *LOSS)),),
    "optimizer_without_gradients": ((anywhere, ("no_gradient", "never_called", "mode_changed", *IDLE, *LOSS)),),
    "lr_warmup": ((anywhere, ("lr_small", *IDLE, *LOSS)),),
    "lr_small": ((anywhere, ("still", "update_ratio", "updates_lost", *LOSS)),),
    "lr_negative": ((anywhere, ("dead_units", "saturated", "constant_output", *IDLE, *WILD, *LOSS)),),
    "decay_large": ((anywhere, ("dead_units", "constant_output", *IDLE, *WILD, *LOSS)),),
    "drops_all": ((anywhere, ("dead_units", "constant_output", *IDLE, *LOSS)),),
    "lr_jump": ((anywhere, ("dead_units", "saturated", "constant_output", *IDLE, *WILD, *LOSS)),),
    "lr_zero": ((anywhere, ("lr_small", "updated_uncalled", *IDLE, *LOSS)),),
    "clipped_to_nothing": ((anywhere, (*IDLE, *LOSS)),),
    "optimizer_holds_strangers": ((anywhere, ("not_in_optimizer", *IDLE, *LOSS)),),
    "zero_grad_missing": ((anywhere, ("dead_units", "saturated", "vanishing", *WILD, *LOSS)),),
    "accumulation_not_divided": ((anywhere, ("dead_units", *WILD, *LOSS)),),
    "loss_broadcast": ((anywhere, ("constant_output", *LOSS)),),
    "double_softmax": ((anywhere, ("vanishing", "saturated", *LOSS)),),
    "loss_sign": ((anywhere, ("saturated", "dead_units", "vanishing", "still", *WILD, *LOSS)),),
    "mode_changed": (
        (same, ("norm_not_updating", "dropout_in_eval")),
        (anywhere, ("dead_units", "saturated", "vanishing", *WILD, *LOSS)),
    ),
    "requires_grad_changed": ((same, ("no_gradient", "still", "vanishing")), (anywhere, LOSS)),
    "not_in_optimizer": ((same, (*IDLE, "never_called")), (anywhere, LOSS)),
    "no_gradient": ((before, ("no_gradient", *IDLE)), (anywhere, LOSS)),
    "two_optimizers": ((same, ("update_ratio", "exploding")), (anywhere, LOSS)),
    "input_scale": (
        (anywhere, ("dead_units", "saturated", "constant_output", "vanishing", "still", *WILD, *LOSS)),
    ),
    "input_padding": ((anywhere, LOSS),),
    "frozen_fresh": ((anywhere, LOSS),),
    "symmetric": (
        (anywhere, ("symmetric", "gradients_wiped", "no_gradient", *IDLE, "constant_output", "dead_units", *LOSS)),
    ),
    "copies": ((anywhere, ("no_gradient", *IDLE, *LOSS)),),
    "update_ratio": ((anywhere, ("dead_units", "saturated", "constant_output", *IDLE, *WILD, *LOSS)),),
    "exploding": ((anywhere, ("dead_units", "saturated", "constant_output", "vanishing", "still", *WILD, *LOSS)),),
    "loss_rises": ((anywhere, ("nan_origin", "near_overflow", "gradient_spike", "dead_units", "saturated")),),
    "near_overflow": ((after, ("nan_origin",)),),
    "nan_origin": ((anywhere, ("constant_output", "dead_units", "saturated", *IDLE, *WILD, *LOSS)),),
    "underflow": ((before, IDLE), (anywhere, LOSS)),
    "updates_lost": ((same, ("still", "update_ratio")), (anywhere, LOSS)),
    "saturated": (
        (before, ("still", "vanishing", "no_gradient")),
        (after, ("constant_output", "saturated")),
        (anywhere, LOSS),
    ),
    "dead_units": (
        (before, ("still", "vanishing", "zero_gradient", "no_gradient", "dead_units", "exploding")),
        (after, ("constant_output", "still", "zero_gradient", "dead_units")),
        (anywhere, LOSS),
    ),
    "constant_output": (
        (before, ("still", "vanishing", "zero_gradient", "no_gradient")),
        (after, ("constant_output", "still", "zero_gradient")),
        (anywhere, LOSS),
    ),
    "vanishing": ((before, ("still", "vanishing")), (anywhere, LOSS)),
    "collapsed": ((anywhere, ("loss_stuck", "loss_at_chance", "vanishing", "still")),),
    "norm_not_updating": ((anywhere, ("norm_not_updating",)),),
    "constant_batch": ((anywhere, ("constant_output", "zero_gradient", *LOSS)),),
    "loss_at_chance": ((anywhere, ("loss_stuck",)),),
    "still": ((anywhere, ("loss_stuck", "loss_at_chance")),),
    "baseline": ((anywhere, ("baseline",)),),
}
"""What follows from each rule's findings. Who comes first here is preferred where there are two causes."""
GROWING = ("exploding", "loss_rises", "update_ratio")
PREFERRED = {name: place for place, name in enumerate(FOLLOWS)}


def causes_first(findings: list[Finding], training: Training) -> list[Finding]:
    """The findings that follow from no other, each with those that do, at any remove.

    A cause is as severe as the worst that follows from it; a note causes nothing that is worse than a note.
    """
    causes: dict[int, int] = {}
    for place, one in enumerate(findings):
        fitting = [
            other
            for other, cause in enumerate(findings)
            if other != place and _explains(cause, one, training) and place not in _chain(causes, other)
        ]
        if fitting:
            causes[place] = min(fitting, key=lambda other: _rank(findings[other], training))
    below: dict[int, list[Finding]] = {}
    for place in causes:
        below.setdefault(_chain(causes, place)[-1], []).append(findings[place])
    return [
        _with(one, below.get(place, []), training) for place, one in enumerate(findings) if place not in causes
    ]


def _explains(cause: Finding, other: Finding, training: Training) -> bool:
    if cause.rule == "input_scale":
        if _records_between(cause, other, training) > LATE:
            return False
    elif SEVERITIES.index(cause.severity) == 2 and other.severity != "note":
        return False
    if cause.rule == other.rule and not _goes_first(cause, other, training):
        return False
    if cause.rule == "update_ratio" and cause.evidence.get("too") != "large" and other.rule not in (*IDLE, *LOSS):
        return False
    if (
        cause.rule == "update_ratio"
        and cause.evidence.get("too") == "large"
        and other.rule in ("still", "vanishing")
    ):
        return False
    if {cause.rule, other.rule} == {"exploding", "dead_units"} and not _is_cause(cause, other, training):
        return False
    if _is_too_late(cause, other, training):
        return False
    return any(other.rule in rules and near(cause, other, training) for near, rules in FOLLOWS.get(cause.rule, ()))


def _is_cause(cause: Finding, other: Finding, training: Training) -> bool:
    """Of growth and units that died: one layer in front of them that jumps at the very step is how they died.

    Growth of several layers goes on by itself, and kills units on its way.
    """
    grown, dead = (cause, other) if cause.rule == "exploding" else (other, cause)
    alone = all(training.owner(one) == training.owner(grown.site) for one in grown.evidence.get("others", ()))
    is_how = alone and grown.step == dead.step and before(dead, grown, training)
    return is_how == (cause is dead)


def _goes_first(cause: Finding, other: Finding, training: Training) -> bool:
    """Of two of one rule: for gradients that of the later layer, for outputs that of the earlier one."""
    if cause.rule == "no_gradient":  # by one cut, the layer next to it goes first
        is_one = cause.line == other.line and (cause.line != "" or cause.severity != "note")
        return is_one and training.place(cause.site) > training.place(other.site)
    if cause.rule in ("symmetric", "norm_not_updating"):  # one mistake, made in several layers
        return training.place(cause.site) < training.place(other.site)
    if cause.rule in ("vanishing", "still"):
        return training.place(cause.site) > training.place(other.site)
    if cause.rule == "dead_units" and cause.evidence.get("share") == 1 == other.evidence.get("share"):
        return (cause.step, -training.place(cause.site)) < (other.step, -training.place(other.site))
    if cause.rule == "baseline":
        orders = [(one.step, one.evidence.get("order", 0), training.place(one.site)) for one in (cause, other)]
        return orders[0] < orders[1]
    if cause.rule in ("constant_output", "exploding", "saturated"):
        first, second = ((one.step, training.place(one.site), one.site) for one in (cause, other))
        return first < second
    return False


def _is_too_late(cause: Finding, other: Finding, training: Training) -> bool:
    """Whether a cause comes too long after what it is to explain."""
    if other.rule == "nan_origin" and cause.rule in GROWING:
        return cause.step >= other.step  # growth that is seen with the first NaN is no more than that
    late = 0 if cause.rule in ("nan_origin", *GROWING) else LATE
    if cause.step <= other.step or other.rule in LOSS:
        return False
    return _records_between(other, cause, training) > late


def _records_between(first: Finding, second: Finding, training: Training) -> int:
    """How many records the second is later than the first."""
    return int(((training.steps > first.step) & (training.steps <= second.step)).sum())


def _rank(cause: Finding, training: Training) -> tuple[int, int, int]:
    return PREFERRED[cause.rule], cause.step, -training.place(cause.site)


def _chain(causes: Mapping[int, int], place: int) -> list[int]:
    found = [place]
    while found[-1] in causes:
        found.append(causes[found[-1]])
    return found


def _with(cause: Finding, consequences: list[Finding], training: Training) -> Finding:
    if not consequences:
        return cause
    ordered = sorted(consequences, key=lambda one: (one.step, training.place(one.site)))
    worst = min(SEVERITIES.index(one.severity) for one in (cause, *ordered))
    return replace(cause, severity=SEVERITIES[worst], consequences=tuple(ordered))


def _within(above: str, below: str) -> bool:
    return above in ("", below) or below.startswith(f"{above}.")
