"""Axes: what the figures share: getting an Axes, telling few sites from many, and choosing rows."""

from __future__ import annotations

from typing import Any

from hookline.errors import InvalidArgument, NoSuchSite, near
from hookline.globs import matcher
from hookline.optional import need
from hookline.rows import Row
from hookline.site import label_of

FEW = 10
"""Up to this many sites have a legend of their own; more get colours by depth and a bar."""


def new_axes(ax: Any, figsize: tuple[float, float] = (8, 4)) -> Any:
    """`ax`, or the Axes of a new figure."""
    if ax is not None:
        return ax
    return pyplot().subplots(figsize=figsize, layout="constrained")[1]


def pyplot() -> Any:
    """matplotlib.pyplot; MissingExtra with the command to install it."""
    return need("matplotlib.pyplot", "'hookline[plots]'", "drawing")


def chosen(rows: list[Row], site: str | None, kind: str, *, mode: str = "train") -> dict[str, list[Row]]:
    """The rows of a kind by site, in order of execution and of steps; InvalidArgument where there are none."""
    matches = None if site is None else matcher(site)
    found: dict[str, list[Row]] = {}
    for row in rows:
        if row["kind"] == kind and (matches is None or matches(row["site"])):
            found.setdefault(label_of(row), []).append(row)
    modes = {row["mode"] for some in found.values() for row in some}
    if len(modes) > 1:  # training and validation are not one curve
        found = {name: [row for row in some if row["mode"] == mode] for name, some in found.items()}
    if not any(found.values()):
        kinds = sorted({row["kind"] for row in rows})
        if rows and matches is not None and not any(matches(row["site"]) for row in rows):
            missing = NoSuchSite(site, dict.fromkeys(row["site"] for row in rows))
            raise InvalidArgument(f"there is nothing to plot: {missing}")
        raise InvalidArgument(
            f"there is nothing to plot: no {kind!r} rows"
            + (f" of sites {site!r}" if site else "")
            + f".{near(kind, kinds)} The kinds there are: {', '.join(kinds) or 'none, nothing was recorded'}."
        )
    return {name: sorted(some, key=lambda row: row["step"]) for name, some in found.items() if some}


def check_stat(lines: dict[str, list[Row]], stat: str) -> None:
    """InvalidArgument where no row has a number of that name."""
    rows = [row for some in lines.values() for row in some]
    if not any(isinstance(row.get(stat), (int, float)) for row in rows):
        known = sorted({name for row in rows for name, value in row.items() if isinstance(value, (int, float))})
        raise InvalidArgument(f"the rows have no {stat!r}.{near(stat, known)} They have {', '.join(known)}.")


def at_step(lines: dict[str, list[Row]], step: int | None) -> tuple[int, dict[str, Row]]:
    """The step, the last one if none is given, and the row of each site there; InvalidArgument without one."""
    steps = sorted({row["step"] for some in lines.values() for row in some})
    step = steps[-1] if step is None else step
    if step not in steps:
        raise InvalidArgument(
            f"there are no rows of step {step!r}; there are steps from {steps[0]} to {steps[-1]}."
        )
    return step, {name: row for name, some in lines.items() for row in some if row["step"] == step}


def colors(count: int) -> Any:
    """One colour per site: distinct ones for few, along the depth of the model for many."""
    plt = pyplot()
    if count <= FEW:
        return [plt.get_cmap("tab10")(number) for number in range(count)]
    return plt.get_cmap("viridis")([number / (count - 1) for number in range(count)])


def name_lines(ax: Any, names: list[str]) -> None:
    """A legend for few sites; for many, a bar that says which colour is the first and which the last."""
    if len(names) <= FEW:
        ax.legend(fontsize="small", frameon=False, loc="center left", bbox_to_anchor=(1.0, 0.5))
        return
    plt = pyplot()
    mapped = plt.cm.ScalarMappable(cmap="viridis")
    mapped.set_clim(0, len(names) - 1)
    bar = ax.figure.colorbar(mapped, ax=ax, pad=0.02)
    ticks = [round(part * (len(names) - 1) / 4) for part in range(5)]
    short = short_names(names)
    bar.set_ticks(ticks, labels=[short[tick] for tick in ticks])
    bar.ax.tick_params(labelsize="small")


def short_names(names: list[str], length: int = 24) -> list[str]:
    """The names without the parts that all of them begin or end with, so that what differs is seen.

    >>> short_names(["encoder.blocks.0.mlp.proj", "encoder.blocks.11.attn.proj"])
    ['0.mlp', '11.attn']
    >>> short_names(["fc", "transformer.layers.attention.output.dense"])
    ['fc', 'transformer…output.dense']
    """
    parts = [name.split(".") for name in names]
    if len(names) > 1:
        while all(len(some) > 1 for some in parts) and len({some[0] for some in parts}) == 1:
            parts = [some[1:] for some in parts]
        while all(len(some) > 1 for some in parts) and len({some[-1] for some in parts}) == 1:
            parts = [some[:-1] for some in parts]
    joined = [".".join(some) for some in parts]
    return [
        name if len(name) <= length else f"{name[: length // 2 - 1]}…{name[-(length // 2) :]}" for name in joined
    ]
