"""Queries: what the browser may ask of a run, and the answer as plain data; every limit is here."""

from __future__ import annotations

import base64
from typing import Any

import numpy as np

from hookline import bins
from hookline.errors import InvalidArgument
from hookline.page.judging import as_json, plain
from hookline.page.shrink import axis, marked, onto
from hookline.page.viewed import Health, ViewedRun
from hookline.runs.columns import STATS
from hookline.wiring import Optimizer

MOST_SERIES = 1000
MOST_POINTS = 2000
MOST_IMAGES = 24
MOST_COLUMNS = 400
MOST_TEXT = 200
LARGEST_STEP = 2**53
PATIENCE = 0.25
"""Seconds for which the health of layers is waited for; most runs are looked at by then, and the others go on."""
SOON = 1000
"""The health of a run of more frames is not waited for: it takes longer than that."""
QUANTILES = (0.01, 0.25, 0.5, 0.75, 0.99)
SHARE_LOW = 1e-4
"""The share of values at which colour begins; the scale from there to 1 is logarithmic."""


LONG = ("sites", "wiring", "audit")
"""Facts that are told in another form, or are nothing that the page shows."""


def describe(run: ViewedRun, seconds: float = float("inf")) -> dict[str, Any]:
    """Everything about a run but its numbers: facts, modules with their health, series, steps.

    What was written since is read first, for so long at most.
    """
    with run.lock:  # who is told a revision must get all of it, or would wait for ever
        progress = run.catch_up(seconds)
        revision = run.revision
    health = run.health(PATIENCE if run.revision < SOON else 0.0)
    return {
        "name": run.name,
        "meta": {name: plain(value) for name, value in run.meta.items() if name not in LONG},
        "wired": _wired(run),
        "state": run.state(),
        "modules": [list(module) for module in run.modules()],
        "series": [list(series) for series in run.series],
        "stats": [*(name for name in STATS if name != "count"), *run.names(), "count"],
        "steps": run.steps,
        "revision": revision,
        "progress": progress,
        **health_as_json(health),
    }


def _wired(run: ViewedRun) -> list[str]:
    """The optimizers of the run, in words; empty where it does not tell."""
    found = run.wiring()
    return [] if found is None else [_optimizer(one) for one in found.optimizers]


def _optimizer(one: Optimizer) -> str:
    rates = [f"{group['lr']:g}" for group in one.groups if "lr" in group]
    shown = ", ".join(dict.fromkeys(rates[:4])) + (", …" if len(rates) > 4 else "")
    groups = f", {len(one.groups)} groups" if len(one.groups) > 1 else ""
    return f"{one.type}{f' (lr {shown}{groups})' if rates else groups}"


def health_as_json(health: Health) -> dict[str, Any]:
    """Health as JSON; `health`, `findings` and `verdict` are None where it is not known (yet).

    `health` has of each module [rule, why, step, severity] of what was found; `findings` has the causes with
    their consequences.
    """
    known = health.revision >= 0 and health.error is None
    modules = {
        site: [[one.rule, one.why, one.step, one.severity] for one in found]
        for site, found in health.modules.items()
    }
    return {
        "health": modules if known else None,
        "findings": as_json(health.findings) if known else None,
        "verdict": health.verdict if known else None,
        "looked": health.revision,
        "until": health.until,
        "no_health": health.error,
    }


def curves(run: ViewedRun, ask: dict[str, Any], most: int = MOST_SERIES) -> dict[str, Any]:
    """A statistic of many series over the steps: {x, spans, values: [base64 of float32], bad: [[point]]}."""
    numbers = _series(run, ask, most)
    stat = _text(ask, "stat")
    points = _whole(ask, "points", 10, MOST_POINTS, default=600)
    first, last = (_whole(ask, name, -1, LARGEST_STEP, default) for name, default in (("from", -1), ("to", 2**53)))
    found = [run.columns(number) for number in numbers]
    within = [(one.steps >= first) & (one.steps <= last) for one in found]
    every = np.unique(
        np.concatenate([c.steps[w] for c, w in zip(found, within, strict=True)] or [np.empty(0, int)])
    )
    x, starts = axis(every, points)
    values, bad = [], []
    for number, one, there in zip(numbers, found, within, strict=True):
        steps = one.steps[there]
        got = one.stats.get(stat)
        here = np.full(len(steps), np.nan) if got is None else got[there]
        values.append(floats(onto(x, starts, steps, here)))
        wrong = (one.stats["nan"][there] > 0) | (one.stats["inf"][there] > 0)
        if run.series[number].kind == "scalar":
            wrong |= ~np.isfinite(here)
        bad.append(marked(x, starts, steps[wrong]))
    return {"x": x.tolist(), "spans": starts is not None, "values": values, "bad": bad}


def heat(run: ViewedRun, ask: dict[str, Any]) -> dict[str, Any]:
    """The histograms of some series over the steps, as images with a logarithmic colour in a byte."""
    numbers = _series(run, ask, MOST_IMAGES)
    columns = _whole(ask, "columns", 10, MOST_COLUMNS, default=200)
    return {"images": [_image(run, number, columns) for number in numbers]}


def _image(run: ViewedRun, number: int, columns: int) -> dict[str, Any] | None:
    """None where there is no histogram; the rows of the image go from the largest value down to the smallest."""
    steps, which, counts = run.histograms(number)
    if not len(steps):
        return None
    every, stats = run.columns(number)
    cuts = np.linspace(0, len(every), min(columns, len(every)) + 1).astype(int)
    starts, ends = every[cuts[:-1]], every[cuts[1:] - 1]
    places = which.astype(np.int64) * len(starts) + np.searchsorted(starts, steps, side="right") - 1
    image = np.bincount(places, counts, bins.COUNT * len(starts)).reshape(bins.COUNT, -1)
    rows, magnitudes = bins.folded(image)
    share = rows / np.maximum(rows.sum(axis=0), 1)
    used = np.flatnonzero(rows.any(axis=1))
    low, high = (int(used[0]), int(used[-1]) + 1) if len(used) else (0, len(rows))
    with np.errstate(divide="ignore"):
        colour = 1 + 254 * (1 - np.log(share[low:high]) / np.log(SHARE_LOW))
    byte = np.where(share[low:high] > 0, np.clip(np.nan_to_num(colour), 1, 255), 0).astype(np.uint8)[::-1]
    bad = every[(stats["nan"] > 0) | (stats["inf"] > 0)]
    values = [*(-magnitudes[::-1]), 0.0, *magnitudes][low:high][::-1]
    return {
        "starts": starts.tolist(),
        "ends": ends.tolist(),
        "rows": byte.shape[0],
        "pixels": base64.b64encode(byte.tobytes()).decode(),
        "edges": [float(f"{value:.3g}") for value in values],
        "bad": np.unique(np.searchsorted(starts, bad, side="right") - 1).tolist(),
    }


def at(run: ViewedRun, ask: dict[str, Any], most: int = MOST_SERIES) -> dict[str, Any]:
    """The statistics and quantiles of series at a step, or at the last one before it that they have.

    With `finite`, that is the last one with a finite value, if there is any.
    """
    numbers = _series(run, ask, most)
    step = _whole(ask, "step", -1, LARGEST_STEP, default=LARGEST_STEP)
    wanted: dict[int, int] = {}
    for number in numbers:
        steps, stats = run.columns(number)
        place = int(np.searchsorted(steps, step, side="right")) - 1
        if ask.get("finite") is True:
            finite = np.flatnonzero((stats["nan"] + stats["inf"] < stats["count"])[: place + 1])
            place = int(finite[-1]) if len(finite) else place
        if place >= 0:
            wanted[number] = int(steps[place])
    rows = run.rows_at(wanted)
    return {"rows": [_row(rows.get(number), wanted.get(number)) for number in numbers]}


def _row(row: dict[str, Any] | None, step: int | None) -> dict[str, Any] | None:
    if row is None:
        return None
    numbers = {name: _number(value) for name, value in row.items() if isinstance(value, (int, float))}
    spread = None
    if row.get("hist") is not None and row["hist"].any():
        spread = [_number(bins.quantile(row["hist"], q, row["min"], row["max"])) for q in QUANTILES]
    return {**numbers, "step": step, "quantiles": spread}


def _number(value: float) -> float | None:
    """A number that JSON has; None for NaN and Inf."""
    return float(f"{value:.6g}") if np.isfinite(value) else None


def floats(values: Any) -> str:
    """An array as base64 of 32-bit floats: half the size of text, and read at once."""
    with np.errstate(over="ignore"):
        return base64.b64encode(np.asarray(values, "<f4").tobytes()).decode()


def _series(run: ViewedRun, ask: dict[str, Any], most: int) -> list[int]:
    numbers = ask.get("series")
    if not isinstance(numbers, list) or not all(type(number) is int for number in numbers):
        raise InvalidArgument("series: expected a list of numbers.")
    if len(numbers) > most:
        raise InvalidArgument(f"{len(numbers)} series were asked for at once; the most is {most}.")
    if wrong := [number for number in numbers if not 0 <= number < len(run.series)]:
        raise InvalidArgument(f"there is no series {wrong[0]}: the run has {len(run.series)}.")
    return numbers


def _whole(ask: dict[str, Any], name: str, low: int, high: int, default: int) -> int:
    value = ask.get(name, default)
    if type(value) is not int or not low <= value <= high:
        raise InvalidArgument(f"{name}: expected a whole number from {low} to {high}.")
    return value


def _text(ask: dict[str, Any], name: str) -> str:
    value = ask.get(name)
    if not isinstance(value, str) or len(value) > MOST_TEXT:
        raise InvalidArgument(f"{name}: expected a text of at most {MOST_TEXT} letters.")
    return value
