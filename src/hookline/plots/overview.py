"""Overview: what `Watch.plot` draws: mean, std and near-zero curves, and the colourful dimension below."""

from __future__ import annotations

from typing import Any

from hookline.plots.axes import chosen, pyplot
from hookline.plots.colorful import colorful_dimension
from hookline.plots.curves import curves
from hookline.rows import Row

SHOWN = 6
"""So many sites get a colourful dimension of their own, spread over those that were chosen."""


def overview(rows: list[Row], site: str | None = None, kind: str = "output") -> Any:
    """The Figure with curves of all chosen sites and colourful dimensions of up to six of them."""
    lines = chosen(rows, site, kind)
    names = [some[0]["site"] for some in lines.values() if some[0]["call"] == 0]
    if len(names) > SHOWN:
        names = [names[round(part * (len(names) - 1) / (SHOWN - 1))] for part in range(SHOWN)]
    with_images = all(row["hist"] is not None for some in lines.values() for row in some)
    images = -(-len(names) // 2) if with_images else 0
    figure = pyplot().figure(figsize=(12, 2.6 * (3 + images)), layout="constrained")
    grid = figure.add_gridspec(3 + images, 2)
    for place, stat in enumerate(("mean", "std", "near_zero")):
        curves(rows, stat, site, kind, ax=figure.add_subplot(grid[place, :]))
    for number, name in enumerate(names if with_images else ()):
        ax = figure.add_subplot(grid[3 + number // 2, number % 2])
        colorful_dimension([row for row in rows if row["site"] == name and not row["call"]], name, kind, ax=ax)
    return figure
