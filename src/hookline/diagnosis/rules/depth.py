"""Sizes along the depth of a model: exploding and vanishing, measured by the model's own other layers."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from hookline.diagnosis.finding import Finding
from hookline.diagnosis.measures import RECENT, Array, bad_counts, early, recent, rms, since
from hookline.diagnosis.registry import found, rule
from hookline.diagnosis.training import Seen, Training

GROWTH = 100.0
"""So many times as large as at the start, and ..."""
BEYOND = {"output": 30.0, "grad_output": 100.0, "param": 10.0, "param_grad": 100.0}
"""... as the largest of any layer was then: growth from nothing is no explosion."""
DEPTH = 1e4
"""From the first layer to a later one, at the start, and as large a value as that."""
LADDER, RUNGS, TIMES = 1e3, 4, 2.0
"""The same where it grows from layer to layer: at so many layers, and so many times at each."""
LEARNT = 0.5
"""Of the loss at the start: growth beside it harms nobody yet."""
EXPERT = "expert"
"""One of many that a router hardly ever chooses has little to learn: a note."""
VANISHING = 1e-4
"""Of the gradients of the layers with large ones."""
ENOUGH = 5
WORDS = {
    "output": "the output of {}",
    "grad_output": "the gradient of the output of {}",
    "param": "{}",
    "param_grad": "the gradient of {}",
}


@rule(
    "exploding",
    advice="Try a lower learning rate, gradient clipping, smaller initial weights or a norm in front of it.",
)
def exploding(training: Training) -> Iterator[Finding]:
    """Values grow out of all proportion, over the steps or along the depth of the model.

    When: the size (RMS) of outputs, gradients or weights is 100 times its own at the start, and many times the
    largest that any layer had then; or outputs grow by 10,000 from the first layer to a later one, or by 1,000 in
    steps of two and more at four layers. Growth from
    nothing (zero-initialised branches, LoRA's B) is none, and while the loss falls to half of what it was it is a
    note. Only the layer that is first is told for each kind.
    Why it can be wrong: losses that are sums grow with the data.
    """
    learns = _is_learning(training)
    for kind, beyond in BEYOND.items():
        curves = [one for one in training.trained(kind) if len(one.steps) >= 2 * RECENT]
        sizes = [rms(one.stats) for one in curves]
        starts = [early(size) for size in sizes]
        largest = max((start for start in starts if np.isfinite(start)), default=0.0)
        grown = []
        for one, size, start in zip(curves, sizes, starts, strict=True):
            with np.errstate(invalid="ignore"):
                gone = bad_counts(one.stats) > 0  # what has become NaN is not small again
                above = (size >= GROWTH * start) & (size >= beyond * largest) & (size > 0) & ~gone
                at = since(above | gone)
            if at is not None and start > 0 and above.any():
                place = max(at, int(np.argmax(above)))
                grown.append((int(one.steps[place]), one, float(np.nanmax(size[above])), start))
        for step, one, now, start in sorted(grown, key=lambda item: (item[0], training.place(item[1].site)))[:1]:
            others = f", and {len(grown) - 1} others grow with it" if len(grown) > 1 else ""
            grows = (
                f"{WORDS[kind].format(one.site or 'the model')} is {now / start:,.0f} times as large "
                "as at the start"
            )
            yield found(
                one.site,
                step,
                f"{grows}{others}",
                severity="note" if learns else "warning",
                confidence=0.5 if learns else 0.8,
                rows=[(one.site, kind)],
                rms=now,
                rms_at_first=start,
                others=[other.site for _, other, _, _ in grown if other is not one][:20],
            )
    yield from _along_depth(training)


def _is_learning(training: Training) -> bool:
    """Whether the loss, which is above 0, is half of what it was, and finite to the end."""
    loss = training.scalars.get("loss")
    if loss is None or len(loss.values) < 2 * RECENT or not np.isfinite(loss.values).all():
        return False
    return 0 < recent(loss.values) < LEARNT * early(loss.values)


def _along_depth(training: Training) -> Iterator[Finding]:
    curves = [one for one in training.trained("output") if one.site in training.leaves]
    sizes = [(one, float(size)) for one in curves if np.isfinite(size := rms(one.stats)[0]) and size > 0]
    if len(sizes) < 3:
        return
    first = sizes[0][1]
    largest, rungs = first, 0
    for one, size in sizes:
        if size >= TIMES * largest:
            rungs += 1
        largest = max(largest, size)
        if size >= (LADDER if rungs >= RUNGS else DEPTH) * max(first, 1.0):
            yield found(
                one.site,
                one.steps[0],
                f"outputs grow from layer to layer: that of {one.site} is {size:.2g} at the first step, "
                f"that of {sizes[0][0].site} "
                f"{first:.2g}",
                confidence=0.8,
                rows=[(one.site, "output"), (sizes[0][0].site, "output")],
                rms=size,
                rms_of_first=first,
            )
            return


@rule(
    "vanishing",
    advice="Look at the activations and the initialisation of the layers behind it; try a norm, residual "
    "connections or "
    "activations that do not saturate.",
)
def vanishing(training: Training) -> Iterator[Finding]:
    """The gradients of a layer are nothing beside those of other layers.

    When: the largest gradient norm of a module's parameters is a ten-thousandth of that of the layers with large
    ones, or zero, over the last five records at which it ran and got any. Norms, not means: a large embedding has
    few rows with a gradient. An expert among many is a note. Why it can be wrong: the layer has little to learn.
    """
    ran = {one.site: one for one in training.trained("output")}
    curves: dict[str, list[tuple[Array, Array]]] = {}
    for one in training.curves("param_grad"):
        steps, norms = _while_it_ran(one, ran.get(training.owner(one.site)))
        if len(steps) >= ENOUGH:
            curves.setdefault(training.owner(one.site), []).append((steps, norms))
    if len(curves) < 2:
        return
    sizes = {module: max((recent(norms) for _, norms in some), default=0.0) for module, some in curves.items()}
    finite = [size for size in sizes.values() if np.isfinite(size)]
    large = float(np.quantile(finite, 0.9)) if finite else 0.0
    if not large:
        return
    for module, size in sizes.items():
        if size >= VANISHING * large or not np.isfinite(size):
            continue
        steps, most = max(curves[module], key=lambda pair: recent(pair[1]))
        first = since(most < VANISHING * large)
        if first is None:
            continue
        times = f"{large / size:,.0f} times smaller than elsewhere" if size else "zero"
        yield found(
            module,
            steps[first],
            f"the gradient of its parameters is {times}: it learns nothing",
            severity="note" if EXPERT in module.lower() else "warning",
            confidence=0.7 if size else 0.8,
            rows=[(module, "param_grad")],
            norm=size,
            norm_elsewhere=large,
        )


def _while_it_ran(one: Seen, output: Seen | None) -> tuple[Array, Array]:
    """Steps and norms of a gradient, where the module ran on anything."""
    norm = np.where(one.stats["nan"] + one.stats["inf"] > 0, np.nan, one.stats["l2"])
    if output is None:
        return one.steps, norm
    steps, mine, its = np.intersect1d(one.steps, output.steps, return_indices=True)
    ran = output.stats["count"][its] > 0
    return steps[ran], norm[mine][ran]
