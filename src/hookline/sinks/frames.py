"""Frames: many rows of statistics as compressed columns; histograms apart, since few readers want them.

A block is plain memory, column after column: an archive of arrays (npz) takes longer to open than to read.
What a row has beyond the fixed columns (a ratio, statistics of users, channels) is kept as it is.
"""

from __future__ import annotations

import io
import json
import zlib
from typing import Any, NamedTuple

import numpy as np

Row = dict[str, Any]

COUNTS = ("count", "zeros", "nan", "inf")
FLOATS = ("mean", "std", "min", "max", "absmax", "l2", "near_zero")
IDENTITY = ("site", "kind", "call", "mode")
FIXED = {*COUNTS, *FLOATS, *IDENTITY, "step", "rank", "hist"}
NUMBERS = ("series", "step", *COUNTS)
INTEGER, FLOAT, BIN = np.dtype("<i8"), np.dtype("<f8"), np.dtype("<u2")
NPZ = b"PK\x03\x04"
"""How a block of format 1 begins; others begin with the number of their rows, which is never 67,324,752."""


class Block(NamedTuple):
    """Rows as bytes: their statistics, and their histograms (None where no row has one)."""

    stats: bytes
    hists: bytes | None = None


class Histograms(NamedTuple):
    """The bins of many rows that are not empty, row after row; `lengths`: how many each has, -1 without one."""

    lengths: Any
    bins: Any
    counts: Any
    size: int


def pack(rows: list[Row], series: list[int]) -> Block:
    """A block with these rows; `series` are the numbers of their (site, kind, call, mode).

    >>> row = {"step": 3, "count": 2, "mean": 0.5, "hist": np.asarray([0, 2, 0]), "ratio": 0.1}
    >>> [(number, dict(got)["ratio"], got["hist"].tolist()) for number, got in unpack(pack([row], [7]))]
    [(7, 0.1, [0, 2, 0])]
    """
    integers = [series, [row["step"] for row in rows], *([row.get(name, 0) for row in rows] for name in COUNTS)]
    floats = [[row.get(name, np.nan) for row in rows] for name in FLOATS]
    extra = [{name: value for name, value in row.items() if name not in FIXED} for row in rows]
    stats = _zipped(
        np.asarray([len(rows)], INTEGER),
        np.asarray(integers, INTEGER),
        np.asarray(floats, FLOAT),
        json.dumps(extra).encode() if any(extra) else b"",
    )
    return Block(stats, _packed_histograms([row.get("hist") for row in rows]))


def unpack(block: Block) -> list[tuple[int, Row]]:
    """The rows of a block, each with the number of its series."""
    columns, extra = unpack_columns(block.stats)
    hists = _dense(unpack_histograms(block))
    plain = {name: columns[name].tolist() for name in ("step", *COUNTS, *FLOATS)}
    return [
        (number, {**{name: values[at] for name, values in plain.items()}, "hist": hists[at], **extra[at]})
        for at, number in enumerate(columns["series"].tolist())
    ]


def unpack_columns(stats: bytes) -> tuple[dict[str, Any], list[Row]]:
    """The statistics of a block as arrays, by name, and what else each row has."""
    data = zlib.decompress(stats)
    if data.startswith(NPZ):
        columns = _format_1(data)
        return columns, json.loads(columns["extra"].tobytes())
    (count,) = np.frombuffer(data, INTEGER, 1).tolist()
    at = 8 * (1 + count * len(NUMBERS))
    integers = np.frombuffer(data, INTEGER, count * len(NUMBERS), 8).reshape(len(NUMBERS), count)
    floats = np.frombuffer(data, FLOAT, count * len(FLOATS), at).reshape(len(FLOATS), count)
    text = data[at + 8 * count * len(FLOATS) :]
    columns = {**dict(zip(NUMBERS, integers, strict=True)), **dict(zip(FLOATS, floats, strict=True))}
    return columns, json.loads(text) if text else [{}] * count


def unpack_histograms(block: Block) -> Histograms:
    """The histograms of a block."""
    data = zlib.decompress(block.stats if block.hists is None else block.hists)
    if block.hists is not None:
        rows, entries, size = np.frombuffer(data, INTEGER, 3).tolist()
        lengths = np.frombuffer(data, INTEGER, rows, 24)
        counts = np.frombuffer(data, INTEGER, entries, 24 + 8 * rows)
        bins = np.frombuffer(data, BIN, entries, 24 + 8 * (rows + entries))
        return Histograms(lengths, bins, counts, size)
    if not data.startswith(NPZ):
        (rows,) = np.frombuffer(data, INTEGER, 1).tolist()
        return Histograms(np.full(rows, -1), np.empty(0, INTEGER), np.empty(0, INTEGER), 0)
    stored = _format_1(data)
    starts, lengths = stored["hist_start"], stored["hist_length"]
    within = np.arange(lengths.sum()) - np.repeat(np.cumsum(lengths) - lengths, lengths)
    bins = within + np.repeat(starts, lengths)
    return Histograms(np.where(starts < 0, -1, lengths), bins, stored["hist"], int(stored["hist_size"][0]))


def _packed_histograms(hists: list[Any]) -> bytes | None:
    there = [hist for hist in hists if hist is not None]
    if not there:
        return None
    used = [np.flatnonzero(hist) for hist in there]
    sizes = iter([len(some) for some in used])
    lengths = [-1 if hist is None else next(sizes) for hist in hists]
    counts = [hist[some] for hist, some in zip(there, used, strict=True)]
    return _zipped(
        np.asarray([len(hists), sum(map(len, used)), len(there[0])], INTEGER),
        np.asarray(lengths, INTEGER),
        np.concatenate(counts).astype(INTEGER),
        np.concatenate(used).astype(BIN),
    )


def _dense(hists: Histograms) -> list[Any]:
    """One array of counts for each row, or None."""
    found: list[Any] = []
    at = 0
    for length in hists.lengths.tolist():
        if length < 0:
            found.append(None)
            continue
        hist = np.zeros(hists.size, np.int64)
        hist[hists.bins[at : at + length]] = hists.counts[at : at + length]
        at += length
        found.append(hist)
    return found


def _zipped(*arrays: Any) -> bytes:
    return zlib.compress(
        b"".join(array.tobytes() if isinstance(array, np.ndarray) else array for array in arrays), 1
    )


def _format_1(data: bytes) -> dict[str, Any]:
    """The columns of a block of format 1: an npz archive, histograms included, each as a stretch of bins."""
    with np.load(io.BytesIO(data), allow_pickle=False) as arrays:
        return {name: arrays[name] for name in arrays.files}
