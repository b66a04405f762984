"""Curves: a statistic over the steps, a line for each site."""

from __future__ import annotations

from typing import Any

from hookline.plots.axes import check_stat, chosen, colors, name_lines, new_axes
from hookline.rows import Row

LOGARITHMIC = ("std", "l2", "absmax", "ratio")


def curves(
    rows: list[Row], stat: str = "mean", site: str | None = None, kind: str = "output", ax: Any = None
) -> Any:
    """The Axes with a curve of `stat` for each site that the glob `site` matches."""
    lines = chosen(rows, site, kind)
    check_stat(lines, stat)
    ax = new_axes(ax)
    marker = "o" if max(len(some) for some in lines.values()) == 1 else ""
    for color, (name, some) in zip(colors(len(lines)), lines.items(), strict=True):
        steps = [row["step"] for row in some]
        values = [row.get(stat, float("nan")) for row in some]
        ax.plot(steps, values, label=name, color=color, linewidth=1.2, marker=marker, markersize=4)
    if stat in LOGARITHMIC and any(row.get(stat, 0) > 0 for some in lines.values() for row in some):
        ax.set_yscale("log")
    ax.set_xlabel("step")
    ax.set_title(f"{stat} of {kind}", loc="left", fontsize="medium")
    ax.grid(alpha=0.25)
    ax.spines[["top", "right"]].set_visible(False)
    name_lines(ax, list(lines))
    return ax


def update_ratio(rows: list[Row], site: str | None = None, ax: Any = None) -> Any:
    """The Axes with |update| / |weight| of each parameter; the line at 0.001 is a common healthy size."""
    ax = curves(rows, "ratio", site, "update", ax)
    ax.axhline(1e-3, color="black", linestyle=":", linewidth=1)
    ax.set_title("size of the update, relative to the weight", loc="left", fontsize="medium")
    return ax
