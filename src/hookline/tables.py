"""Tables: rows as tables have them; a histogram as its bins that are not empty, and their counts."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

import numpy as np

from hookline.optional import need
from hookline.rows import COUNTS, FIXED, FLOATS, IDENTITY, RATIO, Row

NAMES = (*IDENTITY, "count", *FLOATS, *COUNTS[1:], RATIO)
"""Of every table, whatever its rows have: tables of one run then fit together."""
HISTOGRAM = ("hist_bins", "hist_counts")


def more_of(rows: Iterable[Row]) -> dict[str, bool]:
    """What rows have besides: {name: whether it is a number in each}. What is none is kept as JSON.

    >>> more_of([{"site": "fc", "p99": 3.0}, {"channels": {"mean": [1.0]}}])
    {'p99': True, 'channels': False}
    """
    found: dict[str, bool] = {}
    for row in rows:
        for name, value in row.items():
            if name not in FIXED and name != "ratio" and value is not None:
                found[name] = found.get(name, True) and isinstance(value, (int, float))
    return found


def columns_of(rows: list[Row], more: dict[str, bool] | None = None) -> dict[str, list[Any]]:
    """{name: values} of all rows, with `hist_bins` and `hist_counts` in place of `hist`.

    `hookline.lines.bins.edges()` has the edges of the bins.

    >>> columns = columns_of([{"site": "fc", "hist": np.asarray([0, 5, 0, 2])}, {"site": "b", "p99": 3.0}])
    >>> columns["site"], columns["hist_bins"], columns["hist_counts"], columns["p99"]
    (['fc', 'b'], [[1, 3], None], [[5, 2], None], [None, 3.0])
    """
    more = more_of(rows) if more is None else more
    columns = {name: [row.get(name) for row in rows] for name in (*NAMES, *more)}
    for name in [name for name, is_number in more.items() if not is_number]:
        columns[name] = [None if value is None else json.dumps(value) for value in columns[name]]
    hists: list[Any] = [row.get("hist") for row in rows]
    columns["hist_bins"] = [None if hist is None else np.flatnonzero(hist).tolist() for hist in hists]
    columns["hist_counts"] = [None if hist is None else hist[np.flatnonzero(hist)].tolist() for hist in hists]
    return columns


def arrow_table(rows: list[Row], meta: dict[str, Any] | None = None, more: dict[str, bool] | None = None) -> Any:
    """An Arrow table of the rows; `meta` is kept in its schema as JSON, under "hookline"."""
    arrow = need("pyarrow")
    more = more_of(rows) if more is None else more
    types = {
        **dict.fromkeys(("site", "kind", "mode"), arrow.string()),
        **dict.fromkeys(("step", "call", *COUNTS), arrow.int64()),
        **dict.fromkeys((*FLOATS, "ratio"), arrow.float64()),
        **{name: arrow.float64() if is_number else arrow.string() for name, is_number in more.items()},
        "rank": arrow.int32(),  # as readers take the `rank=0` of a folder
        "hist_bins": arrow.list_(arrow.uint16()),
        "hist_counts": arrow.list_(arrow.int64()),
    }
    columns = columns_of(rows, more)
    table = arrow.table({name: arrow.array(values, types[name]) for name, values in columns.items()})
    return table if meta is None else table.replace_schema_metadata({"hookline": json.dumps(meta)})


def pandas_frame(rows: list[Row], *, histograms: bool) -> Any:
    """A pandas DataFrame with the same columns; those of histograms only if they are asked for."""
    columns = columns_of(rows)
    names = [name for name in columns if histograms or name not in HISTOGRAM]
    return need("pandas").DataFrame({name: columns[name] for name in names})


def polars_frame(rows: list[Row], more: dict[str, bool] | None = None) -> Any:
    """A polars DataFrame with the same columns."""
    polars = need("polars")
    more = more_of(rows) if more is None else more
    types = {
        **dict.fromkeys(("site", "kind", "mode"), polars.String),
        **dict.fromkeys(("step", "call", *COUNTS), polars.Int64),
        **dict.fromkeys((*FLOATS, "ratio"), polars.Float64),
        **{name: polars.Float64 if is_number else polars.String for name, is_number in more.items()},
        "rank": polars.Int32,
        "hist_bins": polars.List(polars.UInt16),
        "hist_counts": polars.List(polars.Int64),
    }
    columns = columns_of(rows, more)
    return polars.DataFrame(columns, schema={name: types[name] for name in columns}, strict=False)
