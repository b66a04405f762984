"""Colourful dimension: the histogram of one site over the steps, as an image with a log colour."""

from __future__ import annotations

from typing import Any

import numpy as np

from hookline.errors import InvalidArgument
from hookline.lines import bins
from hookline.plots.axes import Row, chosen, new_axes, pyplot


def colorful_dimension(rows: list[Row], site: str, kind: str = "output", ax: Any = None) -> Any:
    """The Axes with one column per step: bright where many values are, from negative to positive.

    The rows of the image are the bins of the exponent histogram, so each step up is twice as far from
    zero; the line in the middle is zero itself.
    """
    lines = chosen(rows, site, kind)
    name, some = next(iter(lines.items()))
    hists = [row["hist"] for row in some]
    if any(hist is None for hist in hists):
        raise InvalidArgument("the rows have no histograms; watch with histogram=True.")
    image = np.stack(hists, axis=1)
    used = np.nonzero(image.any(axis=1))[0]
    if not len(used):
        raise InvalidArgument(f"every value of {name!r} ({kind}) is NaN or Inf: there is no histogram to draw.")
    top, bottom = used.max(), used.min()
    # A few values far out must not squeeze the rest: 99.9 % of everything decides what is shown.
    share = image.sum(axis=1).cumsum() / image.sum()
    bottom = max(bottom, int(np.searchsorted(share, 0.0005)))
    top = min(top, int(np.searchsorted(share, 0.9995)))
    shown = image[bottom : top + 1] / np.maximum(image.sum(axis=0), 1)
    ax = new_axes(ax)
    steps = [row["step"] for row in some]
    x = _borders(steps)
    y = np.arange(bottom, top + 2) - 0.5
    plt = pyplot()
    norm = plt.matplotlib.colors.LogNorm(vmin=1e-4, vmax=max(float(shown.max()), 2e-4))
    mesh = ax.pcolormesh(x, y, np.ma.masked_less_equal(shown, 0), norm=norm, cmap="magma", rasterized=True)
    ax.set_facecolor("black")
    ticks = _ticks(bottom, top)
    ax.set_yticks(ticks, [_number(tick) for tick in ticks], fontsize="small")
    ax.set_xlabel("step")
    ax.set_title(f"{kind} of {name}", loc="left", fontsize="medium")
    ax.figure.colorbar(mesh, ax=ax, pad=0.02, label="share of values")
    return ax


def _borders(steps: list[int]) -> Any:
    """The left and right edges of the columns: halfway between recorded steps."""
    at = np.asarray(steps, dtype=float)
    if len(at) == 1:
        return np.asarray([at[0] - 0.5, at[0] + 0.5])
    middle = (at[1:] + at[:-1]) / 2
    return np.concatenate([[at[0] - (middle[0] - at[0])], middle, [at[-1] + (at[-1] - middle[-1])]])


def _ticks(bottom: int, top: int) -> list[int]:
    """Up to nine bins to name, zero among them where it is shown."""
    if not bottom <= bins.ZERO <= top:
        return sorted({int(tick) for tick in np.linspace(bottom, top, 7)})
    below = np.linspace(bottom, bins.ZERO, 5) if bottom < bins.ZERO else [bins.ZERO]
    above = np.linspace(bins.ZERO, top, 5) if top > bins.ZERO else [bins.ZERO]
    return sorted({int(round(tick)) for tick in (*below, *above)})


def _number(at: int) -> str:
    """The value at a bin's edge on the side of zero."""
    if at == bins.ZERO:
        return "0"
    low, high = bins.edges()
    return f"{low[at] if at > bins.ZERO else high[at]:.1e}"
