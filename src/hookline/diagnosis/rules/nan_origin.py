"""Where NaN and Inf come from."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from hookline.diagnosis.finding import Finding
from hookline.diagnosis.measures import bad_counts
from hookline.diagnosis.registry import found, rule
from hookline.diagnosis.training import Seen, Training
from hookline.wiring import Place

SKIPPED = 5
"""A GradScaler finds its scale by gradients that overflow: fewer steps of it in a row are its work."""
VALUES = {
    **dict.fromkeys(("log", "log2", "log10", "xlogy", "special_xlogy"), "is infinite at 0"),
    **dict.fromkeys(("div", "reciprocal", "rsqrt"), "is infinite or NaN where it divides by 0"),
    **dict.fromkeys(("exp", "expm1", "pow"), "is infinite for large numbers"),
    **dict.fromkeys(("log1p", "atanh"), "is infinite at -1"),
    **dict.fromkeys(("acos", "asin", "acosh", "sqrt"), "is NaN outside of its range"),
}
"""Operators whose value is infinite or NaN somewhere."""
SLOPES = {
    **dict.fromkeys(("sqrt", "pow"), "has an infinite slope at 0"),
    **dict.fromkeys(("acos", "asin", "atanh"), "has an infinite slope at -1 and 1"),
    "std": "has an infinite slope where all values are equal",
    **dict.fromkeys(("log", "log2", "log10", "xlogy", "special_xlogy"), "has an infinite slope at 0"),
    **dict.fromkeys(("rsqrt", "reciprocal", "div"), "has an infinite slope at 0"),
}
"""Operators whose slope is infinite somewhere; those whose value is finite there come first."""
FORWARD, BACKWARD = ("input", "output"), ("grad_output", "grad_input", "grad", "param_grad")


@rule(
    "nan_origin",
    severity="error",
    advice="Look at what this layer computed at that step (log or sqrt of 0, 0 / 0, a row that is masked "
    "all over, an overflow) "
    "and at what came into it; hookline.watch(..., ops=True) names the operator.",
)
def nan_origin(training: Training) -> Iterator[Finding]:
    """The first value that is NaN or Inf, in the order in which values are computed, and how it spread.

    When: NaN or Inf in any output, gradient or parameter. Of the first step that has any, the first output in
    order of execution; if all are finite, the first gradient in order of the backward. Inf alone that reaches no
    loss, gradient or parameter is a mask, and gradients that overflow now and then under a GradScaler are its
    work: no findings. Why it can be wrong: between two records, and between two modules, nobody looked; the
    place is then the next one that was seen.
    """
    bad = [(one, counts) for one in training.curves() if (counts := bad_counts(one.stats)).any()]
    bad = _harmful(training, bad)
    if not bad:
        return
    step = min(int(one.steps[np.argmax(counts > 0)]) for one, counts in bad)
    here = [
        one for one, counts in bad if counts[np.searchsorted(one.steps, step) :][:1].any() and step in one.steps
    ]
    first = _first(training, here)
    at = int(np.searchsorted(first.steps, step))
    nan, inf = int(first.stats["nan"][at]), int(first.stats["inf"][at])
    what = "NaN" if nan else "Inf"
    share = (nan + inf) / max(first.stats["count"][at], 1)
    place = next(iter(training.wiring.nonfinite), None)
    line, op = ("", "") if place is None else (place.line, place.op)
    born = "" if place is None else f". It was born in {op}: {place.what}"
    if place is None and (suspects := _in_loss(training, first, here, step)):
        line, op = suspects[0][0].line, suspects[0][0].op
        each = [f"{one.op}{f' at {one.line}' if one.line else ''}, which {words}" for one, words in suspects[:3]]
        born = ". It was born in the loss: " + (each[0] if len(each) == 1 else f"one of {'; '.join(each)}")
    site = first.site if place is None or not place.module else place.module
    before = float(first.stats["absmax"][at - 1]) if at else float("nan")
    spread = sorted({one.site for one, _ in bad} - {first.site}, key=training.place)
    reason = _reason(training, first, step, before)
    yield found(
        site,
        step,
        f"{_words(first)} {_much(share)} {what} at step {step:,}{born}{reason}",
        line=line,
        rows=[(first.site, first.kind)],
        share=share,
        kind=first.kind,
        absmax_before=None if np.isnan(before) else before,
        spread=spread[:20],
        op=op,
    )


def _harmful(training: Training, bad: list[tuple[Seen, np.ndarray]]) -> list[tuple[Seen, np.ndarray]]:
    """Without masks of -inf, and without the gradients by which a scaler finds its scale."""
    if "loss_scale" in training.scalars:
        bad = [pair for pair in bad if pair[0].kind not in BACKWARD or pair[1].astype(bool)[-SKIPPED:].all()]
    loss = training.scalars.get("loss")
    loss_is_bad = loss is not None and not np.isfinite(loss.values).all()
    harmed = [one for one, _ in bad if one.stats["nan"].any() or one.kind not in FORWARD]
    if not harmed and not loss_is_bad:
        trains = loss is not None or any(True for _ in training.curves("param_grad", "grad_output"))
        return [] if trains else [pair for pair in bad if pair[0].site == "" or len(training.modules) == 1]
    steps = [int(one.steps[np.argmax(bad_counts(one.stats) > 0)]) for one in harmed]
    if loss_is_bad and loss is not None:
        steps.append(int(loss.steps[np.argmax(~np.isfinite(loss.values))]))
    since = min(steps)
    kept = []
    for one, counts in bad:
        # Inf that was there before anything was harmed is a mask.
        is_mask = not one.stats["nan"].any() and one.kind in FORWARD and bool(counts[one.steps < since].any())
        if not is_mask:
            kept.append((one, np.where(one.steps < since, 0, counts)))
    return [pair for pair in kept if pair[1].any()]


def _first(training: Training, here: list[Seen]) -> Seen:
    """Of what is not finite at one step, what was computed first: weights, then outputs, then gradients."""

    def key(one: Seen) -> tuple[int, int]:
        place = training.place(one.site)
        if one.kind == "param":
            return 0, place
        if one.kind in FORWARD:
            # What comes into a module is there before it and all within it ran.
            return 1, 2 * place + (one.kind == "output")
        if one.kind == "update":
            return 4, place
        return 2 + (one.kind == "param_grad"), -place

    outputs = [one for one in here if one.kind in FORWARD]
    leaves = [one for one in outputs if one.site in training.leaves]
    if outputs and not leaves and (parameters := [one for one in here if one.kind == "param"]):
        return min(parameters, key=key)
    return min(here, key=key)


def _in_loss(training: Training, first: Seen, here: list[Seen], step: int) -> list[tuple[Place, str]]:
    """Operators between the model and the loss that may have made it, with what each is known for, where the
    first that is bad is the gradient of what the model puts out, and all that the model computed is finite."""
    places = [training.place(one) for one in training.leaves]
    is_last = first.site == "" or training.place(first.site) >= max(places, default=0)
    if first.kind != "grad_output" or not is_last or any(one.kind in (*FORWARD, "param") for one in here):
        return []
    loss = training.scalars.get("loss")
    at = None if loss is None else loss.values[loss.steps == step][:1]
    is_finite = at is None or not len(at) or bool(np.isfinite(at[0]))
    known = SLOPES if is_finite else VALUES
    suspects = [one for look in training.wiring.looks for one in look.risky if one.op in known]
    return [(one, known[one.op]) for one in sorted(suspects, key=lambda one: [*known].index(one.op))]


def _reason(training: Training, first: Seen, step: int, before: float) -> str:
    if first.kind == "param":
        return ": a step before it, or somebody else, has spoilt the parameter"
    if before > 1e4:
        return f"; its largest value was {before:.2g} at the record before"
    if first.kind in FORWARD and training.place(first.site) == 0:
        return ": it is the first that runs, so what came into the model may be the cause"
    return ""


def _words(one: Seen) -> str:
    words = {
        "output": "{} puts out",
        "input": "{} gets",
        "param": "{} has",
        "update": "the update of {} has",
        "param_grad": "the gradient of {} has",
    }
    return words.get(one.kind, "the gradient of the output of {} has").format(one.site or "the model")


def _much(share: float) -> str:
    return "nothing but" if share == 1 else f"{share:.2%}" if share >= 0.0001 else "a little"
