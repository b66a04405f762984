"""Distributions: how the values of each site are spread at one step."""

from __future__ import annotations

from typing import Any

import numpy as np

from hookline import bins
from hookline.errors import InvalidArgument
from hookline.plots.axes import at_step, chosen, new_axes, short_names
from hookline.rows import Row

READABLE = 40


def distributions(
    rows: list[Row], step: int | None = None, site: str | None = None, kind: str = "output", ax: Any = None
) -> Any:
    """The Axes with a box per site in order of execution: 1 %, 25 %, 50 %, 75 % and 99 % of its values.

    The scale is logarithmic on both sides of zero. It is the last step, if none is given.
    """
    lines = chosen(rows, site, kind)
    step, boxes = at_step(lines, step)
    if any(row["hist"] is None for row in boxes.values()):
        raise InvalidArgument(f"there are no histograms of {kind!r} at step {step}; watch with histogram=True.")
    ax = new_axes(ax, figsize=(max(6, min(16, 1.5 + 0.25 * len(boxes))), 4.5))
    drawn = [_box(row) for row in boxes.values()]
    ax.bxp(
        drawn,
        positions=range(len(drawn)),
        widths=0.6,
        showfliers=False,
        patch_artist=True,
        boxprops={"facecolor": "#9cc3e6", "linewidth": 0.8},
        medianprops={"color": "#1f3b57"},
    )
    sizes = [abs(box[side]) for box in drawn for side in ("whislo", "whishi") if box[side]]
    ax.set_yscale("symlog", linthresh=max(min(sizes, default=1.0), max(sizes, default=1.0) * 1e-4))
    every = -(-len(boxes) // READABLE)
    ticks, names = range(0, len(boxes), every), short_names(list(boxes))
    ax.set_xticks(ticks, [names[tick] for tick in ticks], rotation=90, fontsize="small")
    ax.axhline(0, color="black", linewidth=0.6)
    ax.set_title(f"values of {kind} at step {step}", loc="left", fontsize="medium")
    ax.grid(axis="y", alpha=0.25)
    ax.spines[["top", "right"]].set_visible(False)
    return ax


def _box(row: Row) -> dict[str, float]:
    """What matplotlib draws a box from; all zero where there is no finite value."""
    if not np.any(row["hist"]):
        return dict.fromkeys(("whislo", "q1", "med", "q3", "whishi"), 0.0)
    shares = {"whislo": 0.01, "q1": 0.25, "med": 0.5, "q3": 0.75, "whishi": 0.99}
    return {name: bins.quantile(row["hist"], share, row["min"], row["max"]) for name, share in shares.items()}
