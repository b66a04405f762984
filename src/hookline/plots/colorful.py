"""Colourful dimension: the histogram of one site over the steps, as an image with a log colour."""

from __future__ import annotations

import importlib
from typing import Any

import numpy as np

from hookline import bins
from hookline.errors import InvalidArgument
from hookline.plots.axes import chosen, new_axes
from hookline.rows import Row


def colorful_dimension(rows: list[Row], site: str, kind: str = "output", ax: Any = None) -> Any:
    """The Axes with one column per step: bright where many values are, from negative to positive.

    Each row of the image is a bin of the exponent histogram, so every second one is twice as far from
    zero. Zeros and values too small to matter are the row in the middle.
    """
    lines = chosen(rows, site, kind)
    name, some = next(iter(lines.items()))
    hists = [row["hist"] for row in some]
    if any(hist is None for hist in hists):
        raise InvalidArgument("the rows have no histograms; watch with histogram=True.")
    image, magnitudes = bins.folded(np.stack(hists, axis=1))
    if not image.any():
        raise InvalidArgument(f"every value of {name!r} ({kind}) is NaN or Inf: there is no histogram to draw.")
    ax = new_axes(ax)
    shown = image / np.maximum(image.sum(axis=0), 1)
    norm = importlib.import_module("matplotlib.colors").LogNorm(1e-4, max(float(shown.max()), 2e-4))
    half = len(magnitudes)
    y = np.arange(-half, half + 2) - 0.5
    columns = _borders([row["step"] for row in some])
    mesh = ax.pcolormesh(columns, y, np.ma.masked_less_equal(shown, 0), norm=norm, cmap="magma", rasterized=True)
    ax.set_facecolor("black")
    used = np.nonzero(image.any(axis=1))[0] - half
    ax.set_ylim(used.min() - 0.5, used.max() + 0.5)
    ticks = [tick for tick in _ticks(half) if used.min() <= tick <= used.max()]
    ax.set_yticks(ticks, [_number(tick, magnitudes) for tick in ticks], fontsize="small")
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


def _ticks(half: int) -> list[int]:
    """The rows to name: the middle one and some on both sides."""
    apart = max(1, half // 3)
    side = list(range(apart, half + 1, apart))
    return [*(-tick for tick in reversed(side)), 0, *side]


def _number(row: int, magnitudes: Any) -> str:
    """The value at which a row begins, on the side of zero."""
    return "0" if row == 0 else f"{'-' if row < 0 else ''}{magnitudes[abs(row) - 1]:.2g}"
