"""What the number format does: overflow to come, underflow, updates that are lost to rounding."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from hookline.diagnosis.finding import Finding
from hookline.diagnosis.measures import RECENT, recent, since, zeros_share
from hookline.diagnosis.registry import found, rule
from hookline.diagnosis.training import Seen, Training

LARGEST = {"float16": 65504.0, "bfloat16": 3.39e38, "float32": 3.40e38}
SMALLEST = {"float16": 6.1e-5}
"""The smallest number with full precision."""
NEARLY = 0.5
"""Of the largest number."""
FULL = 1e37
"""Any format but fp64 is nearly full there."""
ZEROS = 0.5
LOST = 0.5
"""The share of weights whose update is lost."""
ENOUGH = 3


def _dtype(training: Training, one: Seen) -> str:
    """The format of a series' values: that of the module's parameters; fp16 where a scaler is at work."""
    params = training.wiring.params
    if one.site in params:
        return params[one.site].dtype.removeprefix("torch.")
    own = {param.dtype.removeprefix("torch.") for param in params.values() if param.module == one.site}
    if "loss_scale" in training.scalars and one.kind in ("output", "input"):
        return "float16"
    every = own or {param.dtype.removeprefix("torch.") for param in params.values()}
    return every.pop() if len(every) == 1 else ""


@rule(
    "near_overflow",
    advice="Use bfloat16, put a norm in front of it, lower the learning rate, or keep this layer in float32.",
)
def near_overflow(training: Training) -> Iterator[Finding]:
    """Values come near the largest number that their format holds.

    When: the largest value is above half of it at three records and at the last ones; fp16 holds 65,504. Why it
    can be wrong: large values stay as they are. Which format outputs have is taken from the layer's parameters,
    and from whether a GradScaler is at work.
    """
    for one in training.trained("output", "param", "param_grad"):
        if one.kind == "param_grad" and "loss_scale" in training.scalars:
            continue
        dtype = _dtype(training, one)
        most = min(LARGEST.get(dtype, FULL), FULL)
        large = (one.stats["absmax"] > NEARLY * most) & np.isfinite(one.stats["absmax"])
        first = since(large) if int(large.sum()) >= ENOUGH else None
        if first is not None:
            largest = float(np.max(one.stats["absmax"][first:]))
            yield found(
                one.site,
                one.steps[first],
                f"its largest {'value' if one.kind == 'output' else one.kind} is {largest:.3g}, and "
                f"{dtype or 'float32'} holds "
                f"{LARGEST.get(dtype, 3.4e38):.3g} at most",
                rows=[(one.site, one.kind)],
                absmax=largest,
                dtype=dtype,
            )


@rule("underflow", advice="Use a GradScaler, or bfloat16, which has the range of float32.")
def underflow(training: Training) -> Iterator[Finding]:
    """Gradients in fp16 are so small that they become zero.

    When: fp16 parameters whose largest gradient is below the smallest full number (6e-5), or most of whose
    gradient is zero while it is small, over the last records. Why it can be wrong: the layer is about to be done
    with learning.
    """
    for one in training.curves("param_grad"):
        smallest = SMALLEST.get(_dtype(training, one))
        if smallest is None or len(one.steps) < RECENT:
            continue
        absmax = one.stats["absmax"]
        small = (absmax < smallest) | ((zeros_share(one.stats) > ZEROS) & (absmax < 100 * smallest))
        first = since(small)
        if first is not None:
            yield found(
                one.site,
                one.steps[first],
                f"the gradient of {one.site} is {recent(absmax):.2g} at most, too small for float16: "
                f"{recent(zeros_share(one.stats)):.0%} of it is zero",
                confidence=0.8,
                rows=[(one.site, "param_grad")],
                absmax=recent(absmax),
                zeros=recent(zeros_share(one.stats)),
            )


@rule(
    "updates_lost",
    advice="Keep the weights in float32 (autocast), use stochastic rounding, or a larger learning rate.",
)
def updates_lost(training: Training) -> Iterator[Finding]:
    """Updates are smaller than what the format of the weights can tell apart: the weights stay as they are.

    When: half of the weights with a gradient were not changed by the step, over the last records, in bf16 or
    fp16. Why it can be wrong: at the end of a schedule, when the rate is nearly 0, nothing more is to be learnt.
    """
    lost = {}
    for one in training.curves("update"):
        if "lost" in one.stats and len(one.steps) >= RECENT:
            first = since(one.stats["lost"] >= LOST)
            if first is not None and one.stats["count"][-1] > 1:
                lost[one.site] = one, first
    if not lost:
        return
    among = [one.site for one in training.curves("update") if "lost" in one.stats and one.stats["count"][-1] > 1]
    places = training.together(lost, among=among)
    site = next(iter(places)) if len(places) == 1 or len(lost) < ZEROS * len(among) else ""
    share = float(np.median([recent(one.stats["lost"]) for one, _ in lost.values()]))
    what = next(iter(lost)) if len(lost) == 1 else f"{len(lost)} of {len(among)} parameters"
    yield found(
        site,
        min(one.steps[first] for one, first in lost.values()),
        f"{share:.0%} of the updates of {what} are lost to rounding: they are too small for the format "
        "of the weights",
        rows=[(name, "update") for name in list(lost)[:8]],
        confidence=0.9,
        lost=share,
        params=list(lost)[:50],
    )
