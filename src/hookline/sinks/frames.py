"""Frames: many rows of statistics as one compressed block of columns.

What a row has beyond the fixed columns (a ratio, statistics of users, channels) is kept as it is.
"""

from __future__ import annotations

import io
import json
import zlib
from typing import Any

import numpy as np

Row = dict[str, Any]

COUNTS = ("count", "zeros", "nan", "inf")
FLOATS = ("mean", "std", "min", "max", "absmax", "l2", "near_zero")
IDENTITY = ("site", "kind", "call", "mode")
FIXED = {*COUNTS, *FLOATS, *IDENTITY, "step", "rank", "hist"}


def pack(rows: list[Row], series: list[int]) -> bytes:
    """A block with these rows; `series` are the numbers of their (site, kind, call, mode).

    >>> row = {"step": 3, "count": 2, "mean": 0.5, "hist": np.asarray([0, 2, 0]), "ratio": 0.1}
    >>> [(number, dict(got)["ratio"], got["hist"].tolist()) for number, got in unpack(pack([row], [7]))]
    [(7, 0.1, [0, 2, 0])]
    """
    columns: dict[str, Any] = {
        "series": np.asarray(series, np.int32),
        "step": np.asarray([row["step"] for row in rows], np.int64),
    }
    for name in COUNTS:
        columns[name] = np.asarray([row.get(name, 0) for row in rows], np.int64)
    for name in FLOATS:
        columns[name] = np.asarray([row.get(name, np.nan) for row in rows], np.float64)
    columns |= _packed_histograms([row.get("hist") for row in rows])
    extra = [{name: value for name, value in row.items() if name not in FIXED} for row in rows]
    columns["extra"] = np.frombuffer(json.dumps(extra).encode(), np.uint8)
    out = io.BytesIO()
    np.savez(out, **columns)
    return zlib.compress(out.getvalue(), 1)


def unpack(block: bytes) -> list[tuple[int, Row]]:
    """The rows of a block, each with the number of its series."""
    with np.load(io.BytesIO(zlib.decompress(block)), allow_pickle=False) as columns:
        loaded = {name: columns[name] for name in columns.files}
    extra = json.loads(loaded["extra"].tobytes())
    hists = _histograms(loaded)
    plain = {name: loaded[name].tolist() for name in ("step", *COUNTS, *FLOATS)}
    return [
        (number, {**{name: values[at] for name, values in plain.items()}, "hist": hists[at], **extra[at]})
        for at, number in enumerate(loaded["series"].tolist())
    ]


def _packed_histograms(hists: list[Any]) -> dict[str, Any]:
    """Histograms are empty but for a stretch: its start and length, and all stretches in a row."""
    starts, lengths, stretches = [], [], []
    size = 0
    for hist in hists:
        if hist is None:
            starts.append(-1)
            lengths.append(0)
            continue
        size = len(hist)
        used = np.flatnonzero(hist)
        start, end = (int(used[0]), int(used[-1]) + 1) if len(used) else (0, 0)
        starts.append(start)
        lengths.append(end - start)
        stretches.append(np.asarray(hist[start:end], np.int64))
    return {
        "hist_start": np.asarray(starts, np.int32),
        "hist_length": np.asarray(lengths, np.int32),
        "hist": np.concatenate(stretches) if stretches else np.empty(0, np.int64),
        "hist_size": np.asarray([size], np.int32),
    }


def _histograms(columns: dict[str, Any]) -> list[Any]:
    hists: list[Any] = []
    at, size = 0, int(columns["hist_size"][0])
    for start, length in zip(columns["hist_start"].tolist(), columns["hist_length"].tolist(), strict=True):
        if start < 0:
            hists.append(None)
            continue
        hist = np.zeros(size, np.int64)
        hist[start : start + length] = columns["hist"][at : at + length]
        at += length
        hists.append(hist)
    return hists
