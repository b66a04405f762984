"""Tags: what a number is called where only names and numbers are known: kind/statistic/site, or scalar/name."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hookline.rows import FIXED, SCALAR, Row
from hookline.site import label_of

STATS = ("mean", "std", "absmax", "near_zero", "nan", "inf")
"""Sent where nobody says which; and whatever else a row has, as `ratio` or a statistic of your own."""


def tag(row: Row, stat: str) -> str:
    """The name of a statistic of a row.

    >>> row = {"site": "", "kind": "output", "call": 0, "rank": 0, "mode": "train"}
    >>> tag(row, "std"), tag({**row, "site": "fc", "call": 1, "mode": "eval", "rank": 3}, "std")
    ('output/std/(model)', 'output/std/fc #1 @eval @rank3')
    """
    mode = "" if row["mode"] == "train" else f" @{row['mode']}"
    return _ranked(f"{row['kind']}/{stat}/{label_of(row)}{mode}", row)


def _ranked(name: str, row: Row) -> str:
    return f"{name} @rank{row['rank']}" if row["rank"] else name


def scalars(row: Row, stats: Sequence[str] | None = None) -> dict[str, float]:
    """The numbers of a row by their tags: those asked for, as far as it has them; of a scalar the one it is.

    A run may have a `loss` of the user's own: a scalar is called by its kind too.

    >>> scalars({"site": "lr/0", "kind": "scalar", "mean": 0.1, "std": 0.0, "rank": 0})
    {'scalar/lr/0': 0.1}
    """
    if row["kind"] == SCALAR:
        return {_ranked(f"{SCALAR}/{row['site']}", row): float(row["mean"])}
    if stats is None:
        stats = [*STATS, *(name for name in row if name not in FIXED)]
    return {tag(row, name): float(row[name]) for name in stats if _is_number(row.get(name))}


def by_step(rows: list[Row]) -> dict[int, list[Row]]:
    """The rows of each step, in the order in which they came."""
    found: dict[int, list[Row]] = {}
    for row in rows:
        found.setdefault(row["step"], []).append(row)
    return found


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)
