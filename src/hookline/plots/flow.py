"""Flow: how large the gradients are from the first layer to the last, at one step."""

from __future__ import annotations

from typing import Any

from hookline.plots.axes import at_step, check_stat, chosen, new_axes, short_names
from hookline.rows import Row

READABLE = 40
"""Beyond this many bars only every few have a name."""


def gradient_flow(
    rows: list[Row],
    step: int | None = None,
    site: str | None = None,
    kind: str = "param_grad",
    stat: str = "l2",
    ax: Any = None,
) -> Any:
    """The Axes with a bar for each site in order of execution; the last step there is, if none is given.

    A site without gradient, or with NaN or Inf in it, has a red mark at the foot of its bar.
    """
    lines = chosen(rows, site, kind)
    check_stat(lines, stat)
    step, bars = at_step(lines, step)
    ax = new_axes(ax, figsize=(max(6, min(16, 1.5 + 0.25 * len(bars))), 4.5))
    heights = [row.get(stat, float("nan")) for row in bars.values()]
    ax.bar(range(len(bars)), heights, color="#3b6ea5", width=0.8)
    if any(height > 0 for height in heights):
        ax.set_yscale("log")
    bad = [number for number, row in enumerate(bars.values()) if not row.get(stat) or row["nan"] or row["inf"]]
    if bad:
        foot = ax.get_ylim()[0]
        ax.plot(bad, [foot] * len(bad), "v", color="#c0392b", clip_on=False, label="zero, NaN or Inf")
        ax.legend(frameon=False, fontsize="small")
    every = -(-len(bars) // READABLE)
    ticks = range(0, len(bars), every)
    names = short_names(list(bars))
    ax.set_xticks(ticks, [names[tick] for tick in ticks], rotation=90, fontsize="small")
    ax.set_xlim(-0.6, len(bars) - 0.4)
    ax.set_title(f"{stat} of {kind} at step {step}", loc="left", fontsize="medium")
    ax.grid(axis="y", alpha=0.25)
    ax.spines[["top", "right"]].set_visible(False)
    return ax
