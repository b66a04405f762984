"""Asking: what a user may ask of a run by name; what is not there is an error that says what is."""

from __future__ import annotations

from typing import Any

import numpy as np

from hookline.errors import InvalidArgument, NoSuchSite, near
from hookline.globs import matcher
from hookline.rows import SCALAR
from hookline.runfiles.reader import Reader

Series = dict[int, dict[str, Any]]
Chosen = tuple[Reader, Series]


def chosen_series(
    there: list[Chosen], site: str | None, kind: str | None, modules: list[str], *, scalars: bool = False
) -> list[Chosen]:
    """Of each file the series of a site (a name or glob) and a kind; all where nothing was written yet.

    `modules` are the model's: one that has no rows is no mistake. Scalars are meant by their kind
    only, or with `scalars`.
    """
    every = [one for _, series in there for one in series.values()]
    kinds = dict.fromkeys(one["kind"] for one in every)
    asked = {kind} if kind is not None else {*kinds} - ({SCALAR} if not scalars else set())
    named = {SCALAR} if kind == SCALAR else {*kinds} - {SCALAR}
    sites = dict.fromkeys([*(one["site"] for one in every if one["kind"] in named), *modules])
    matches = None
    if site is not None:
        if not isinstance(site, str):
            raise InvalidArgument(f"site={site!r}: expected the name of a site, or a glob such as 'layer*'.")
        matches = matcher(site)
        if every and not any(map(matches, sites)):
            raise NoSuchSite(site, sites, "(These are the sites of the run.)")
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
                if (matches is None or matches(one["site"])) and one["kind"] in asked
            },
        )
        for reader, series in there
    ]


def within(columns: dict[str, Any], steps: Any) -> dict[str, Any]:
    """Of columns the rows whose steps are in a range that leaves some out."""
    if not isinstance(steps, range) or steps.step in (1, -1):
        return columns
    if "hist_starts" in columns:
        raise InvalidArgument("histograms of every few steps can't be had as columns: ask for (first, last).")
    kept = np.isin(columns["step"], np.asarray(steps))
    return {name: values[kept] for name, values in columns.items()}
