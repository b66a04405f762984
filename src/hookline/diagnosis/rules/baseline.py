"""Layers that left the band of a good training."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from hookline.diagnosis.finding import Finding
from hookline.diagnosis.measures import Array, rms, since, spread
from hookline.diagnosis.registry import found, rule
from hookline.diagnosis.training import Training

WIDTH = 6.0
"""The band is so many spreads of the good run's logarithm wide, to either side ..."""
LEAST = np.log(3.0)
"""... and a factor of three at least: another seed has other numbers."""
ENOUGH = 5
KINDS = ("output", "grad_output", "param", "param_grad")
ORDER = ("param", "output", "scalar", "grad_output", "param_grad")
"""Of what left the band at one step, what was computed first."""


@rule(
    "baseline",
    advice="Compare what differs between the two runs: settings, data, code since then.",
)
def baseline(training: Training) -> Iterator[Finding]:
    """A layer's values are no longer in the band of the good run that was given as `baseline`.

    When: the size (RMS) of a series leaves the band around the good one at the same step, until the end and for
    five records; the band is six of its own spreads wide and a factor of three at least. Why it can be wrong:
    the runs were meant to differ.
    """
    good = training.baseline
    if good is None:
        return
    bands: dict[tuple[str, str, str], tuple[Array, Array, float]] = {}
    for one in good.curves(*KINDS):
        bands.setdefault((one.site, one.kind, one.mode), _band(one.steps, rms(one.stats)))
    for name, scalar in good.scalars.items():
        if name in ("loss", "grad_norm"):
            bands[name, "scalar", "train"] = _band(scalar.steps, np.abs(scalar.values))
    mine = [(one.site, one.kind, one.mode, one.steps, rms(one.stats)) for one in training.curves(*KINDS)]
    for name in ("loss", "grad_norm"):
        if name in training.scalars:
            mine.append(
                (name, "scalar", "train", training.scalars[name].steps, np.abs(training.scalars[name].values))
            )
    first: dict[str, Finding] = {}
    for site, kind, mode, steps, size in mine:
        band = bands.get((site, kind, mode))
        if band is None or len(steps) < ENOUGH or len(band[0]) < ENOUGH:
            continue
        left = _left(steps, size, band)
        at = since(left)
        if at is None or len(steps) - at < ENOUGH:
            continue
        module = "" if kind == "scalar" else training.owner(site)
        expected = float(np.exp(np.interp(steps[at], band[0], band[1])))
        what = f"the {kind} of {site or 'the model'}" if kind != "scalar" else f"the {site}"
        away = found(
            module,
            steps[at],
            f"{what} is {size[at]:.3g} at step {int(steps[at]):,}, where the good run has {expected:.3g}",
            confidence=0.8,
            rows=[(site, kind)],
            size=size[at],
            expected=expected,
            order=ORDER.index(kind),
        )
        if module not in first or away.step < first[module].step:
            first[module] = away
    yield from first.values()


def _band(steps: Array, size: Array) -> tuple[Array, Array, float]:
    """Steps, the logarithm of sizes, and how far from it is out of the band."""
    kept = np.isfinite(size) & (size > 0)
    steps, size = steps[kept], np.log(size[kept])
    order = np.argsort(steps, kind="stable")
    steps, size = steps[order], size[order]
    if len(steps) < ENOUGH:
        return steps, size, LEAST
    window = np.ones(ENOUGH) / ENOUGH
    smooth = np.convolve(np.pad(size, ENOUGH // 2, mode="edge"), window, mode="valid")[: len(size)]
    return steps, smooth, max(float(LEAST), WIDTH * spread(size - smooth))


def _left(steps: Array, size: Array, band: tuple[Array, Array, float]) -> Array:
    good, middle, width = band
    with np.errstate(divide="ignore", invalid="ignore"):
        away = np.abs(np.log(size) - np.interp(steps, good, middle))
    # What is not finite has left any band; beyond the good run's last step nobody knows.
    found: Array = (~(away <= width)) & (steps <= good[-1])
    return found
