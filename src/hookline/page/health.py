"""Health: what is wrong with each layer, from its statistics; every threshold is here.

| finding | when |
|---|---|
| NaN | any value of the layer, its gradients or parameters was NaN or Inf |
| exploding | values or gradients are 100 times what they were in the first tenth of the run, or beyond fp16 |
| dead | 98 % of the outputs are zero |
| vanishing | its gradients are 10,000 times smaller than those of the layers with large ones, or zero |
| not updating | a step changes the parameters by less than a ten-millionth |

"Now" is the median of the last five recorded steps of training, so that one odd batch is no finding.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np

RECENT = 5
GROWTH = 100.0
FP16_MAX = 65504.0
DEAD = 0.98
VANISHING = 1e-4
STILL = 1e-7
ORDER = ("nan", "exploding", "dead", "vanishing", "still")
"""The worst first."""


class Finding(NamedTuple):
    """One thing that is wrong: which, a sentence why, and the step at which it is seen."""

    what: str
    why: str
    step: int


def owners(modules: Iterable[str], sites: Iterable[str]) -> dict[str, str]:
    """The module that each site belongs to: itself, or for a parameter the nearest one above.

    >>> owners(["", "fc"], ["fc", "fc.weight", "scale"])
    {'fc': 'fc', 'fc.weight': 'fc', 'scale': ''}
    """
    known = set(modules)
    found = {}
    for site in sites:
        name = site
        while name not in known and name:
            name = name.rpartition(".")[0]
        found[site] = name
    return found


def verdicts(
    series: Sequence[Any], columns: Callable[[int], Any], owner: dict[str, str]
) -> dict[str, list[Finding]]:
    """The findings of each module that has rows, the worst first; an empty list is a healthy module.

    `columns` gives the steps and the arrays of a series by its number.
    """
    found: dict[str, list[Finding]] = {}
    gradients: dict[str, dict[str, tuple[float, int]]] = {}
    trained = {one.site for one in series if one.mode == "train"}
    for number, one in enumerate(series):
        module = owner[one.site]
        mine = found.setdefault(module, [])
        steps, stats = columns(number)
        if not len(steps):
            continue
        mine += _not_finite(one, steps, stats)
        if one.mode != "train" and one.site in trained:
            continue  # validation alone is no training
        mine += [*_exploding(one, steps, stats), *_dead(one, steps, stats), *_still(one, steps, stats)]
        if one.kind in ("grad_output", "param_grad"):
            sizes, size = gradients.setdefault(one.kind, {}), _now(_rms(stats))
            # The largest of a module's: a bias in front of a norm has no gradient in the best of models.
            if size > sizes.get(module, (-1.0, 0))[0]:
                sizes[module] = size, int(steps[-1])
    for kind, sizes in gradients.items():
        for module, finding in _vanishing(kind, sizes):
            found[module].append(finding)
    return {module: _worst_first(some) for module, some in found.items()}


def _worst_first(findings: list[Finding]) -> list[Finding]:
    """One finding of each sort."""
    kept = {finding.what: finding for finding in reversed(findings)}
    return sorted(kept.values(), key=lambda finding: ORDER.index(finding.what))


def _not_finite(series: Any, steps: Any, stats: dict[str, Any]) -> list[Finding]:
    bad = np.flatnonzero((stats["nan"] > 0) | (stats["inf"] > 0))
    if not len(bad):
        return []
    first = bad[0]
    what = "NaN" if stats["nan"][first] else "Inf"
    share = (stats["nan"][first] + stats["inf"][first]) / max(stats["count"][first], 1)
    much = "all" if share == 1 else f"{share:.2%}" if share >= 0.0001 else "a little"
    when = f"at step {int(steps[first]):,}" if len(bad) == 1 else f"from step {int(steps[first]):,}"
    still = "" if bad[-1] == len(steps) - 1 or len(bad) == 1 else f" to {int(steps[bad[-1]]):,}"
    return [Finding("nan", f"{much} of {_words(series)} is {what} {when}{still}", int(steps[first]))]


def _exploding(series: Any, steps: Any, stats: dict[str, Any]) -> list[Finding]:
    if series.kind not in ("output", "grad_output", "param", "param_grad"):
        return []
    now, largest = _now(_rms(stats)), _now(stats["absmax"])
    if largest >= FP16_MAX:
        why = f"{_words(series)} reaches {largest:.2g}, beyond what fp16 holds ({FP16_MAX:,.0f})"
        return [Finding("exploding", why, int(steps[-1]))]
    early = _rms(stats)[: max(RECENT, len(steps) // 10)]
    early = early[np.isfinite(early)]
    if len(steps) < 2 * RECENT or not len(early) or not (before := float(np.median(early))):
        return []
    if now >= GROWTH * before:
        why = f"{_words(series)} is {now / before:,.0f} times as large as at the beginning"
        return [Finding("exploding", why, int(steps[-1]))]
    return []


def _dead(series: Any, steps: Any, stats: dict[str, Any]) -> list[Finding]:
    if series.kind != "output":
        return []
    zeros = _now(stats["zeros"] / np.maximum(stats["count"], 1))
    if zeros >= DEAD:
        much = "all" if zeros == 1 else f"{zeros:.1%}"
        return [Finding("dead", f"{much} of its outputs are zero", int(steps[-1]))]
    return []


def _still(series: Any, steps: Any, stats: dict[str, Any]) -> list[Finding]:
    if series.kind != "update" or "ratio" not in stats:
        return []
    ratio = _now(stats["ratio"])
    if ratio < STILL:
        much = f"a step changes {series.site} by {ratio:.1g} of its size"
        why = much if ratio else f"steps leave {series.site} as it is"
        return [Finding("still", why, int(steps[-1]))]
    return []


def _vanishing(kind: str, sizes: dict[str, tuple[float, int]]) -> list[tuple[str, Finding]]:
    """Compared with the layers whose gradients are large: nine of ten are below these."""
    finite = [size for size, _ in sizes.values() if np.isfinite(size)]
    if not finite:
        return []
    large = float(np.quantile(finite, 0.9))
    what = "its parameters" if kind == "param_grad" else "its output"
    found = []
    for module, (size, step) in sizes.items():
        if size == 0:
            found.append((module, Finding("vanishing", f"the gradient of {what} is zero", step)))
        elif size < VANISHING * large:
            why = f"the gradient of {what} is {large / size:,.0f} times smaller than elsewhere"
            found.append((module, Finding("vanishing", why, step)))
    return found


def _rms(stats: dict[str, Any]) -> Any:
    finite = stats["count"] - stats["nan"] - stats["inf"]
    return np.where(finite > 0, stats["l2"], np.nan) / np.sqrt(np.maximum(finite, 1))


def _now(values: Any) -> float:
    recent = values[-RECENT:]
    recent = recent[~np.isnan(recent)]
    return float(np.median(recent)) if len(recent) else float("nan")


WORDS = {
    "output": "the output",
    "input": "the input",
    "grad_output": "the gradient of the output",
    "grad_input": "the gradient of the input",
    "param": "{}",
    "param_grad": "the gradient of {}",
    "update": "the update of {}",
}


def _words(series: Any) -> str:
    return WORDS.get(series.kind, f"its {series.kind}").format(series.site)
