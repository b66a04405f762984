"""Units that do nothing: dead, all alike, or an output that never changes."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from hookline.diagnosis.activations import before_functions
from hookline.diagnosis.finding import Finding
from hookline.diagnosis.measures import Array, recent, since, zeros_share
from hookline.diagnosis.registry import found, rule
from hookline.diagnosis.training import Seen, Training

WINDOW = 10
"""Units are dead that did nothing at all of so many records."""
ENOUGH = 3
HALF, MOST = 0.5, 0.8
"""The share of a layer's units that have to be dead for a note, and for a warning: half of them is common."""
ZEROS = 0.98
"""The share of outputs of a ReLU that are zero."""
RELUS = ("ReLU", "ReLU6", "Threshold", "Hardtanh")
LAYERS = ("Linear", "Conv", "LazyLinear", "LazyConv")


@rule(
    "dead_units",
    advice="Look at its bias and at what comes into it; try a lower learning rate, another "
    "initialisation or a leaky "
    "activation.",
)
def dead_units(training: Training) -> Iterator[Finding]:
    """Units of a layer put out zero for every sample, so that no gradient comes to them again.

    When: 98 % of the outputs of a ReLU are zero at all of the last records, or, where the ReLU is a function, no
    output of the layer in front of it is above zero; or half of a layer's units (80 % for a warning) had no
    gradient, neither in the weight nor in the bias, at ten records in a row. Zeros by the sample are healthy: half
    of what leaves a ReLU is zero. Why it can be wrong: rows tell how many units had no gradient at a step, not
    which: units that take turns look dead if never more than half of them are at work.
    """
    told = set()
    for one in training.trained("output"):
        if training.type_of(one.site) not in RELUS or len(one.steps) < ENOUGH or not one.stats["count"].all():
            continue
        zeros = zeros_share(one.stats)
        first = since(zeros >= ZEROS)
        if first is not None and len(one.steps) - first >= ENOUGH:
            told.add(one.site)
            share = recent(zeros)
            yield found(
                one.site,
                one.steps[first],
                f"{'all' if share == 1 else f'{share:.1%}'} of its outputs are zero, for every batch",
                severity="error" if share == 1 else "warning",
                confidence=0.95,
                rows=[(one.site, "output")],
                share=share,
            )
    for one in before_functions(training, "relu"):
        below = one.stats["max"] <= 0
        first = since(below) if len(one.steps) >= ENOUGH and one.stats["count"].all() else None
        if first is not None and len(one.steps) - first >= ENOUGH:
            told.add(one.site)
            why = "all of its outputs are below zero, for every batch: the ReLU behind it puts out zeros only"
            rows = [(one.site, "output")]
            yield found(one.site, one.steps[first], why, severity="error", confidence=0.95, rows=rows, share=1.0)
    yield from _by_gradients(training, told)


def _by_gradients(training: Training, told: set[str]) -> Iterator[Finding]:
    """Layers whose activation is no module: units without a gradient, neither in the bias nor in their weights."""
    grads = {one.site: one for one in training.curves("param_grad")}
    layers = [name for name in grads if name.endswith("bias") and training.type_of(name).startswith(LAYERS)]
    layers = sorted(
        (name for name in layers if f"{name.removesuffix('bias')}weight" in grads),
        key=lambda name: training.place(name),
    )
    for place, name in enumerate(layers):
        bias, weight = grads[name], grads[f"{name.removesuffix('bias')}weight"]
        steps, quiet = _idle(bias, weight)
        if len(steps) < WINDOW or not bias.stats["count"][-1] > 1:
            continue
        share = float(quiet[-WINDOW:].min())
        # Nothing at all may have other reasons, behind it. Here it is the cause: the next layer gets zeros.
        if share < HALF or (share == 1 and not _gets_zeros(grads, layers[place + 1 : place + 2])):
            continue
        first = since(quiet >= share, 1.0)
        if first is None or _follows_a_dead_one(training, name, told):
            continue
        units = int(bias.stats["count"][-1])
        dead = round(share * units)
        much = "all" if dead == units else f"{dead} of"
        yield found(
            training.owner(name),
            steps[first],
            f"{much} its {units} units are dead: they have no gradient at any of the last "
            f"{len(steps) - first} records",
            severity="warning" if share >= MOST else "note",
            confidence=0.8 if share < 1 else 0.9,
            rows=[(name, "param_grad"), (weight.site, "param_grad")],
            share=share,
            units=units,
        )


def _gets_zeros(grads: dict[str, Seen], following: list[str]) -> bool:
    """Whether the next layer has a gradient in its bias and none in its weight: what comes into it is zero."""
    for name in following:
        bias, weight = grads[name], grads[f"{name.removesuffix('bias')}weight"]
        return recent(bias.stats["absmax"]) > 0 and recent(weight.stats["absmax"]) == 0
    return False


def _follows_a_dead_one(training: Training, name: str, told: set[str]) -> bool:
    """Whether the layer, or the activation right after it, was told to be dead."""
    place = training.place(name)
    return any(training.place(site) in (place, place + 1) for site in told)


def _idle(bias: Seen, weight: Seen) -> tuple[Array, Array]:
    """The share of units without a gradient, at the steps that both have."""
    steps, of_bias, of_weight = np.intersect1d(bias.steps, weight.steps, return_indices=True)
    quiet = np.minimum(zeros_share(bias.stats)[of_bias], zeros_share(weight.stats)[of_weight])
    return steps, quiet


@rule(
    "constant_output",
    advice="Look at what comes into it and at its weights: are they zero, or did it run on a constant?",
)
def constant_output(training: Training) -> Iterator[Finding]:
    """A layer puts out one and the same number everywhere, for all samples and units, while others do not.

    When: the standard deviation of its output is 0 over the last records, and three of them, with more than one
    value; layers that run before it vary. Dead ReLUs are told by another rule. Why it can be wrong: a layer is
    zero on purpose (a mask, a branch that is switched off).
    """
    varied = False
    told: list[str] = []
    for one in training.trained("output"):
        std, count = one.stats["std"], one.stats["count"]
        flat = (std <= 1e-7 * one.stats["absmax"]) & (count > 1) & (one.stats["nan"] + one.stats["inf"] == 0)
        first = since(flat) if len(one.steps) >= ENOUGH else None
        if first is None or len(one.steps) - first < ENOUGH:
            varied = varied or bool((std > 0).any())
            continue
        is_inner = any(one.site == "" or site.startswith(f"{one.site}.") for site in told)
        told.append(one.site)
        if (varied or training.place(one.site) == 0) and training.type_of(one.site) not in RELUS and not is_inner:
            value = recent(one.stats["mean"])
            yield found(
                one.site,
                one.steps[first],
                f"every number that it puts out is {value:.3g}, whatever comes in",
                confidence=0.8 if one.site in training.leaves else 0.7,
                rows=[(one.site, "output")],
                value=value,
            )


@rule("symmetric", advice="Initialise it with random numbers, nn.init.kaiming_uniform_ say.")
def symmetric(training: Training) -> Iterator[Finding]:
    """All weights of a layer are one and the same number: its units do the same and learn the same.

    When: the first record of a weight matrix that gets gradients has a standard deviation of 0 and is not zero;
    or it is zero and stays so. Zero at the start alone is healthy: the last layer of a branch, LoRA's B. So are
    equal rows of an embedding, the gains of a conditional norm: each is looked up by itself and gets a gradient of
    its own. Why it can be wrong: a layer that averages on purpose, and is trained.
    """
    trained = {one.site for one in training.curves("param_grad")}
    shapes = training.wiring.params
    for one in training.curves("param"):
        dims = len(shapes[one.site].shape) if one.site in shapes else 2 if one.site.endswith("weight") else 1
        kind = training.type_of(one.site)
        if one.site not in trained or dims < 2 or one.stats["count"][0] < 4:
            continue
        if "Norm" in kind or kind.startswith("Embedding"):
            continue
        same = one.stats["std"] <= 1e-7 * one.stats["absmax"]
        if not same[0] or (shapes and one.site not in shapes):
            continue
        if one.stats["absmax"][0] > 0:
            value = one.stats["mean"][0]
            yield found(
                one.site,
                one.steps[0],
                f"all of its {int(one.stats['count'][0]):,} weights are {value:.3g} at the start: its "
                "units can't become different",
                confidence=0.9,
                rows=[(one.site, "param")],
                value=value,
            )
        elif len(one.steps) >= WINDOW and not one.stats["absmax"].any():
            why = "all of its weights are zero and stay so: nothing comes through, and no gradient moves them"
            yield found(one.site, one.steps[0], why, confidence=0.8, rows=[(one.site, "param")], value=0.0)
