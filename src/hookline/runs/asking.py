"""Asking: what a user may ask of a run by name; what is not there is an error that says what is."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from hookline.errors import InvalidArgument, NoSuchSite, near
from hookline.globs import matcher
from hookline.rows import HISTOGRAM, RATIO, STATISTICS
from hookline.runfiles.reader import Reader

Series = dict[int, dict[str, Any]]
Chosen = tuple[Reader, Series]
STATS = (*STATISTICS, HISTOGRAM, RATIO)


def chosen_series(there: list[Chosen], site: str | None, kind: str | None, modules: list[str]) -> list[Chosen]:
    """Of each file the series of a site (a name or glob) and a kind; all where nothing was written yet.

    `modules` are the model's: one that has no rows is no mistake.
    """
    every = [one for _, series in there for one in series.values()]
    sites = dict.fromkeys([*(one["site"] for one in every), *modules])
    matches = None
    if site is not None:
        if not isinstance(site, str):
            raise InvalidArgument(f"site={site!r}: the name of a site, or a glob such as 'layer*', is wanted.")
        matches = matcher(site)
        if every and not any(map(matches, sites)):
            raise NoSuchSite(site, sites, "(These are the sites of the run.)")
    kinds = dict.fromkeys(one["kind"] for one in every)
    if kind is not None and every and kind not in kinds:
        raise InvalidArgument(
            f"the run has no rows of kind {kind!r}.{near(kind, kinds)} It has {', '.join(map(repr, kinds))}."
        )
    return [
        (
            reader,
            {
                number: one
                for number, one in series.items()
                if (matches is None or matches(one["site"])) and (kind is None or one["kind"] == kind)
            },
        )
        for reader, series in there
    ]


def check_stat(stat: object, more: Callable[[], dict[str, bool]]) -> None:
    """InvalidArgument where rows have no statistic of that name; `more` tells what they have besides."""
    if stat in STATS:
        return
    known = [*STATS, *more()]
    if stat not in known:
        raise InvalidArgument(f"rows have no {stat!r}.{near(stat, known)} They have {', '.join(known)}.")


def bounds(steps: Any) -> tuple[int | None, int | None]:
    """The first and last step that are meant; None where there is no bound."""
    if steps is None:
        return None, None
    if isinstance(steps, range):
        return (min(steps), max(steps)) if len(steps) else (1, 0)
    pair = isinstance(steps, tuple) and len(steps) == 2
    if pair and all(end is None or isinstance(end, (int, np.integer)) for end in steps):
        first, last = steps
        return first, last
    raise InvalidArgument(f"steps={steps!r}: (first, last) is wanted, or a range; None in it is no bound.")


def within(columns: dict[str, Any], steps: Any) -> dict[str, Any]:
    """Of columns the rows whose steps are in a range that leaves some out."""
    if not isinstance(steps, range) or steps.step in (1, -1):
        return columns
    if "hist_starts" in columns:
        raise InvalidArgument("histograms of every few steps can't be had as columns: ask for (first, last).")
    kept = np.isin(columns["step"], np.asarray(steps))
    return {name: values[kept] for name, values in columns.items()}
