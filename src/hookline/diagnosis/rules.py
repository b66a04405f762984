"""Rules: when something is wrong with a layer. Each is a function of one series, or of all layers' gradients.

| finding | when |
|---|---|
| NaN | any value of the layer, its gradients or parameters was NaN or Inf |
| exploding | values or gradients are 100 times what they were in the first tenth of the run, or beyond fp16 |
| dead | 98 % of the outputs are zero |
| vanishing | its gradients are 10,000 times smaller than those of the layers with large ones, or zero |
| not updating | a step changes the parameters by less than a ten-millionth |

"Now" is the median of the last five recorded steps of training, so that one odd batch is no finding.

To add one: a function under `@rule` with its threshold beside it, its word and sign in `page/static/words.js`, a
row in docs/page.md.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from hookline.diagnosis.finding import Finding
from hookline.rows import RATIO

RECENT = 5
GROWTH = 100.0
FP16_MAX = 65504.0
DEAD = 0.98
VANISHING = 1e-4
STILL = 1e-7
ADVICE = {
    "nan": "Look at the layer that had one first, and at what came into it at that step.",
    "exploding": "Try a lower learning rate, gradient clipping or a norm in front of it.",
    "dead": "Look at its bias and at what comes into it; try a lower learning rate or a leaky activation.",
    "vanishing": "Look at what lies between it and the loss: saturated activations, a missing norm or shortcut.",
    "still": "Look whether the optimizer holds it, and whether its learning rate and gradient are large enough.",
}
"""What to look at, for each rule; the worst first."""
ORDER = tuple(ADVICE)

Array = NDArray[Any]
Stats = dict[str, Array]
"""One array for each statistic, over the steps."""


class Series(Protocol):
    """What a curve is about."""

    @property
    def site(self) -> str: ...
    @property
    def kind(self) -> str: ...
    @property
    def mode(self) -> str: ...


Test = Callable[[Series, Array, Stats], "Finding | None"]


class Rule(NamedTuple):
    """A test of one series; `kinds` are those that it is about, None for all."""

    test: Test
    kinds: tuple[str, ...] | None
    only_training: bool


RULES: list[Rule] = []


def rule(*kinds: str, only_training: bool = True) -> Callable[[Test], Test]:
    """A decorator: adds a test of series of these kinds, or of all. Validation of a layer that is trained as well
    is left out, unless `only_training` is False."""

    def add(test: Test) -> Test:
        RULES.append(Rule(test, kinds or None, only_training))
        return test

    return add


def _finding(rule: str, site: str, step: Any, why: str, **evidence: float) -> Finding:
    severity = "error" if rule == "nan" else "warning"
    return Finding(rule, severity, site, int(step), why, evidence, ADVICE[rule])


@rule(only_training=False)
def not_finite(series: Series, steps: Array, stats: Stats) -> Finding | None:
    """A value was NaN or Inf."""
    bad = np.flatnonzero((stats["nan"] > 0) | (stats["inf"] > 0))
    if not len(bad):
        return None
    first = bad[0]
    what = "NaN" if stats["nan"][first] else "Inf"
    share = (stats["nan"][first] + stats["inf"][first]) / max(stats["count"][first], 1)
    much = "all" if share == 1 else f"{share:.2%}" if share >= 0.0001 else "a little"
    when = f"at step {int(steps[first]):,}" if len(bad) == 1 else f"from step {int(steps[first]):,}"
    still = "" if bad[-1] == len(steps) - 1 or len(bad) == 1 else f" to {int(steps[bad[-1]]):,}"
    why = f"{much} of {_words(series)} is {what} {when}{still}"
    return _finding("nan", series.site, steps[first], why, share=float(share))


@rule("output", "grad_output", "param", "param_grad")
def exploding(series: Series, steps: Array, stats: Stats) -> Finding | None:
    """Values are beyond fp16, or many times what they were."""
    now, largest = recent(rms(stats)), recent(stats["absmax"])
    if largest >= FP16_MAX:
        why = f"{_words(series)} reaches {largest:.2g}, beyond what fp16 holds ({FP16_MAX:,.0f})"
        return _finding("exploding", series.site, steps[-1], why, absmax=largest)
    early = rms(stats)[: max(RECENT, len(steps) // 10)]
    early = early[np.isfinite(early)]
    if len(steps) < 2 * RECENT or not len(early) or not (before := float(np.median(early))):
        return None
    if now >= GROWTH * before:
        why = f"{_words(series)} is {now / before:,.0f} times as large as at the beginning"
        return _finding("exploding", series.site, steps[-1], why, rms=now, rms_at_first=before)
    return None


@rule("output")
def dead(series: Series, steps: Array, stats: Stats) -> Finding | None:
    """Nearly all outputs are zero."""
    zeros = recent(stats["zeros"] / np.maximum(stats["count"], 1))
    if zeros >= DEAD:
        much = "all" if zeros == 1 else f"{zeros:.1%}"
        return _finding("dead", series.site, steps[-1], f"{much} of its outputs are zero", zeros=zeros)
    return None


@rule("update")
def still(series: Series, steps: Array, stats: Stats) -> Finding | None:
    """Steps leave a parameter as it is."""
    if RATIO not in stats:
        return None
    ratio = recent(stats[RATIO])
    if ratio < STILL:
        much = f"a step changes {series.site} by {ratio:.1g} of its size"
        why = much if ratio else f"steps leave {series.site} as it is"
        return _finding("still", series.site, steps[-1], why, ratio=ratio)
    return None


def vanishing(kind: str, sizes: dict[str, tuple[float, int]]) -> list[tuple[str, Finding]]:
    """The layers whose gradients are small beside the large ones, which nine of ten are below.

    `sizes`: the largest gradient of each module, and its last step.
    """
    finite = [size for size, _ in sizes.values() if np.isfinite(size)]
    if not finite:
        return []
    large = float(np.quantile(finite, 0.9))
    what = "its parameters" if kind == "param_grad" else "its output"
    found = []
    for module, (size, step) in sizes.items():
        if size == 0:
            why = f"the gradient of {what} is zero"
            found.append((module, _finding("vanishing", module, step, why, rms=size, rms_elsewhere=large)))
        elif size < VANISHING * large:
            why = f"the gradient of {what} is {large / size:,.0f} times smaller than elsewhere"
            found.append((module, _finding("vanishing", module, step, why, rms=size, rms_elsewhere=large)))
    return found


def rms(stats: Stats) -> Array:
    """The root of the mean square, over the steps."""
    finite = stats["count"] - stats["nan"] - stats["inf"]
    found: Array = np.where(finite > 0, stats["l2"], np.nan) / np.sqrt(np.maximum(finite, 1))
    return found


def recent(values: Array) -> float:
    """The median of the last steps."""
    some = values[-RECENT:]
    some = some[~np.isnan(some)]
    return float(np.median(some)) if len(some) else float("nan")


WORDS = {
    "output": "the output",
    "input": "the input",
    "grad_output": "the gradient of the output",
    "grad_input": "the gradient of the input",
    "param": "{}",
    "param_grad": "the gradient of {}",
    "update": "the update of {}",
}


def _words(series: Series) -> str:
    return WORDS.get(series.kind, f"its {series.kind}").format(series.site)
