"""Arrays: many rows as one array for each column, a hundredth of what they take as dicts."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from hookline.histograms import Histograms
from hookline.rows import COUNTS, FLOATS, IDENTITY, SERIES, Row
from hookline.runfiles.entries import Frame
from hookline.tables import more_of

Columns = dict[str, Any]
Part = tuple[dict[int, dict[str, Any]], int, Frame, Any]
"""The series of a file, its rank, a frame of it, and at which places of the frame rows are wanted."""


def joined(parts: Iterable[Part], stats: list[str] | None, histograms: bool) -> Columns:
    """The columns of all parts, ordered by step: what rows are about, then statistics, those asked for or all."""
    gathered: dict[str, list[Any]] = {name: [] for name in (*IDENTITY, *COUNTS, *FLOATS)}
    wanted = [*COUNTS, *FLOATS] if stats is None else [name for name in stats if name in (*COUNTS, *FLOATS)]
    extra: list[Row] = []
    hists: list[Histograms] = []
    known: dict[str, Any] = {}
    series_known: dict[int, dict[str, Any]] = {}
    for series, rank, frame, places in parts:
        if series is not series_known:  # parts of one file come one after the other
            series_known, known = series, _known(series)
        numbers = frame.columns["series"][places]
        for name, values in known.items():
            gathered[name].append(values[numbers])
        gathered["rank"].append(np.full(len(places), rank, np.int64))
        for name in ("step", *wanted):
            gathered[name].append(frame.columns[name][places])
        if stats is None or len(wanted) < len(stats):
            extra += [frame.extra[place] for place in places]
        if histograms and frame.hists is not None:
            hists.append(frame.hists.at(places))
    columns = {name: _joined(gathered[name], name) for name in (*IDENTITY, *wanted)}
    columns |= _extra(extra, stats)
    order = np.argsort(columns["step"], kind="stable")
    columns = {name: values[order] for name, values in columns.items()}
    return columns | _sorted(hists, order) if histograms else columns


def with_histograms(columns: Columns) -> Columns:
    """Columns whose histograms, if they have any, are two small arrays in each row, None where it has none."""
    if "hist_starts" not in columns:
        return columns
    found = dict(columns)
    starts, had = found.pop("hist_starts"), found.pop("hist_lengths") >= 0
    for name in ("hist_bins", "hist_counts"):
        each = np.empty(len(had), object)
        for place in np.flatnonzero(had):
            each[place] = columns[name][starts[place] : starts[place + 1]]
        found[name] = each
    return found


def _known(series: dict[int, dict[str, Any]]) -> dict[str, Any]:
    """What series are about: for each of SERIES an array with a place for each number."""
    found = {}
    for name in SERIES:
        found[name] = np.zeros(1 + max(series, default=-1), np.int64 if name == "call" else object)
        found[name][list(series)] = [one[name] for one in series.values()]
    return found


def _joined(arrays: list[Any], name: str) -> Any:
    if arrays:
        return np.concatenate(arrays)
    kinds = {"site": object, "kind": object, "mode": object}
    return np.empty(0, kinds.get(name, np.float64 if name in FLOATS else np.int64))


def _extra(rows: list[Row], stats: list[str] | None) -> Columns:
    """What rows have besides: numbers as floats, NaN where a row has none; others as they are."""
    found = more_of(rows)
    if any(row.get("ratio") is not None for row in rows):
        found["ratio"] = True
    columns: Columns = {}
    for name, is_number in found.items():
        if stats is not None and name not in stats:
            continue
        values = [row.get(name) for row in rows]
        if is_number:
            columns[name] = np.asarray([np.nan if value is None else value for value in values], np.float64)
        else:
            columns[name] = np.empty(len(values), object)
            columns[name][:] = values
    for name in stats or ():
        if name not in columns and name not in (*COUNTS, *FLOATS, "hist"):
            columns[name] = np.full(len(rows), np.nan)
    return columns


def _sorted(hists: list[Histograms], order: Any) -> Columns:
    """All histograms in the order of the rows."""
    lengths, bins, counts, _ = Histograms.joined(hists).at(order)
    return {
        "hist_starts": np.concatenate([[0], np.cumsum(np.maximum(lengths, 0))]).astype(np.int64),
        "hist_lengths": lengths,
        "hist_bins": bins,
        "hist_counts": counts,
    }
