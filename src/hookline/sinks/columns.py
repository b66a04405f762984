"""Columns: rows as Arrow has them; a histogram as its bins that are not empty, and their counts."""

from __future__ import annotations

import json
from typing import Any

import numpy as np

from hookline.optional import need
from hookline.sinks.frames import COUNTS, FIXED, FLOATS, Row

TEXT = {"site", "kind", "mode"}
WHOLE = {"step", "call", "rank", *COUNTS}
NAMES = ("site", "kind", "step", "call", "rank", "mode", "count", *FLOATS, *COUNTS[1:], "ratio")
"""Of every table, whatever its rows have: tables of one run then fit together."""


def columns_of(rows: list[Row]) -> dict[str, list[Any]]:
    """{name: values} of all rows, with `hist_bins` and `hist_counts` in place of `hist`.

    `hookline.lines.bins.edges()` has the edges of the bins.

    >>> columns = columns_of([{"site": "fc", "hist": np.asarray([0, 5, 0, 2])}, {"site": "b", "p99": 3.0}])
    >>> columns["site"], columns["hist_bins"], columns["hist_counts"], columns["p99"]
    (['fc', 'b'], [[1, 3], None], [[5, 2], None], [None, 3.0])
    """
    more = dict.fromkeys(name for row in rows for name in row if name not in FIXED and name != "ratio")
    columns = {name: [row.get(name) for row in rows] for name in (*NAMES, *more)}
    for name in more:
        if any(isinstance(value, (dict, list)) for value in columns[name]):
            columns[name] = [None if value is None else json.dumps(value) for value in columns[name]]
    hists: list[Any] = [row.get("hist") for row in rows]
    columns["hist_bins"] = [None if hist is None else np.flatnonzero(hist).tolist() for hist in hists]
    columns["hist_counts"] = [None if hist is None else hist[np.flatnonzero(hist)].tolist() for hist in hists]
    return columns


def arrow_table(rows: list[Row], meta: dict[str, Any] | None = None) -> Any:
    """An Arrow table of the rows; `meta` is kept in its schema as JSON, under "hookline"."""
    arrow = need("pyarrow")
    bins = {"hist_bins": arrow.list_(arrow.uint16()), "hist_counts": arrow.list_(arrow.int64())}
    types = {
        **dict.fromkeys(TEXT, arrow.string()),
        **dict.fromkeys(WHOLE, arrow.int64()),
        **dict.fromkeys((*FLOATS, "ratio"), arrow.float64()),
        "rank": arrow.int32(),  # as readers take the `rank=0` of a folder
        **bins,
    }
    columns = columns_of(rows)
    table = arrow.table({name: arrow.array(values, types.get(name)) for name, values in columns.items()})
    return table if meta is None else table.replace_schema_metadata({"hookline": json.dumps(meta)})
