"""Drawing: the error along the depth, with what rounding may do, as a matplotlib Axes."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, NamedTuple

from hookline.diffs.found import SiteDiff
from hookline.diffs.listing import GRADIENTS, charted, together, worst
from hookline.errors import InvalidArgument
from hookline.plots.axes import new_axes, short_names
from hookline.site import label_of

if TYPE_CHECKING:
    from hookline.diffs.result import Diff

COLORS = {"forward": "#0b6c80", "backward": "#6a3fb5"}
ADDED, FIRST = "#c2571a", "#c01f3a"
READABLE = 40
"""Beyond this many places only every few have a name."""


class Point(NamedTuple):
    """A place on the axis."""

    x: float
    place: SiteDiff


def plot(diff: Diff, ax: Any = None) -> Any:
    """The Axes with the error of each place in order of execution, and the tolerance as a band below it.

    The forward and the backward have a colour each; diamonds are what a place adds to the error by itself. Equal
    values have a hollow mark at the foot; NaN, Inf and other shapes, for which there is no number, a cross at the
    top. Of runs, which have many steps, each step shows its worst place.
    """
    every = together(diff)
    places = [every[at] for at in charted(every, diff.first)]
    if not places:
        raise InvalidArgument("there is nothing to plot: the two sides have no place in common.")
    ax = new_axes(ax, figsize=(9, 4.5))
    by_step = len({one.step for one in places}) > 1
    sides = {name: _points(places, name, by_step) for name in COLORS}
    points = [point for some in sides.values() for point in some]
    low, high = _range(points)
    for name, some in sides.items():
        if some:
            _side(ax, name, some, low, high, by_step)
    ax.set_yscale("log")
    ax.set_ylim(low / 2, high * 2)
    if diff.first is not None:
        _mark(ax, diff.first, points, by_step)
    _axis(ax, places, by_step)
    ax.set_ylabel(f"error ({' or '.join(dict.fromkeys(one.metric for one in places))})")
    ax.set_title(f"{diff.a} against {diff.b}", loc="left", fontsize="medium")
    ax.grid(axis="y", alpha=0.25)
    ax.spines[["top", "right"]].set_visible(False)
    ax.legend(frameon=False, fontsize="small", loc="center left", bbox_to_anchor=(1.0, 0.5))
    return ax


def _points(places: list[SiteDiff], name: str, by_step: bool) -> list[Point]:
    mine = [(at, one) for at, one in enumerate(places) if (one.kind in GRADIENTS) == (name == "backward")]
    if not by_step:
        return [Point(at, one) for at, one in mine]
    steps: dict[int, list[SiteDiff]] = {}
    for _, one in mine:
        steps.setdefault(one.step, []).append(one)
    return [Point(step, worst(some)) for step, some in sorted(steps.items())]


def _range(points: list[Point]) -> tuple[float, float]:
    """The ends of the axis: all numbers that a logarithm can show."""
    drawn = [
        value
        for _, one in points
        for value in (one.error, one.tolerance, one.added)
        if value is not None and math.isfinite(value) and value > 0
    ]
    return (min(drawn) / 4, max(drawn) * 4) if drawn else (1e-8, 1.0)


def _side(ax: Any, name: str, points: list[Point], low: float, high: float, by_step: bool) -> None:
    """The band, the line and the marks of a forward or a backward."""
    color = COLORS[name]
    x, tolerances = zip(*((point.x, max(point.place.tolerance, low / 2)) for point in points), strict=True)
    look: dict[str, Any] = {"color": color, "alpha": 0.15, "label": f"{name}: tolerance"}
    if by_step:
        ax.vlines(x, low / 2, tolerances, linewidth=6, **look)
    else:
        ax.fill_between(x, low / 2, tolerances, step="mid", linewidth=0, **look)
        ax.plot(
            x, [_height(point.place.error, low, high) for point in points], color=color, linewidth=1, alpha=0.6
        )
    looks: dict[str, dict[str, Any]] = {
        "error": {"marker": "o", "color": color},
        "equal": {"marker": "o", "color": color, "markerfacecolor": "none"},
        "NaN, Inf or another shape": {"marker": "x", "color": FIRST},
    }
    for word, look in looks.items():
        mine = [(point.x, _height(point.place.error, low, high)) for point in points if _word(point) == word]
        if mine:
            ax.plot(*zip(*mine, strict=True), linestyle="", markersize=4, label=f"{name}: {word}", **look)
    for born, alpha in ((False, 0.35), (True, 1.0)):
        added = [point for point in points if point.place.added and bool(point.place.born) == born]
        heights = [_height(point.place.added or 0.0, low, high) for point in added]
        label = f"{name}: {'born there' if born else 'added, within rounding'}"
        if added:
            ax.plot(
                [point.x for point in added], heights, "D", color=ADDED, alpha=alpha, markersize=3.5, label=label
            )


def _word(point: Point) -> str:
    error = point.place.error
    return "equal" if error == 0 else "error" if math.isfinite(error) else "NaN, Inf or another shape"


def _height(value: float, low: float, high: float) -> float:
    """Where a number is drawn: zero at the foot, what is not finite at the top."""
    return max(value, low) if math.isfinite(value) else high


def _mark(ax: Any, first: SiteDiff, points: list[Point], by_step: bool) -> None:
    """A line at the first place that differs, with its name; nothing where only one side has it."""
    same = [point.x for point in points if (point.x == first.step if by_step else point.place is first)]
    if not same:
        return
    ax.axvline(same[0], color=FIRST, linestyle=":", linewidth=1.2)
    right = same[0] > (points[0].x + max(point.x for point in points)) / 2
    ax.annotate(
        f"first: {short_names([first.label], 40)[0]}",
        (same[0], 1.0),
        xycoords=("data", "axes fraction"),
        xytext=(-4 if right else 4, -3),
        textcoords="offset points",
        ha="right" if right else "left",
        va="top",
        fontsize="small",
        color=FIRST,
    )


def _axis(ax: Any, places: list[SiteDiff], by_step: bool) -> None:
    if by_step:
        ax.set_xlabel("step")
        return
    every = -(-len(places) // READABLE)
    ticks = range(0, len(places), every)
    names = short_names([label_of({"site": one.site, "call": one.call}) for one in places])
    ax.set_xticks(ticks, [names[tick] for tick in ticks], rotation=90, fontsize="small")
    ax.set_xlim(-0.6, len(places) - 0.4)
