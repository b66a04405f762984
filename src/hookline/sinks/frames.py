"""Frames: many rows of statistics as compressed columns; histograms apart, since few readers want them.

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
        integers=np.asarray(integers, np.int64),
        floats=np.asarray(floats, np.float64),
        extra=np.frombuffer(json.dumps(extra).encode() if any(extra) else b"", np.uint8),
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
    stored = _unzipped(stats)
    if "series" in stored:  # format 1: an array of its own for each column, histograms among them
        columns = stored
    else:
        columns = dict(zip(NUMBERS, stored["integers"], strict=True))
        columns |= zip(FLOATS, stored["floats"], strict=True)
    text = stored["extra"].tobytes()
    return columns, json.loads(text) if text else [{} for _ in columns["series"]]


def unpack_histograms(block: Block) -> Histograms:
    """The histograms of a block."""
    if block.hists is not None:
        stored = _unzipped(block.hists)
        return Histograms(stored["lengths"], stored["bins"], stored["counts"], int(stored["size"][0]))
    stored = _unzipped(block.stats)
    if "series" not in stored:
        none = np.full(stored["integers"].shape[1], -1)
        return Histograms(none, np.empty(0, np.int64), np.empty(0, np.int64), 0)
    # Format 1: a stretch of bins for each row, empty ones included.
    starts, lengths = stored["hist_start"], stored["hist_length"]
    within = np.arange(lengths.sum()) - np.repeat(np.cumsum(lengths) - lengths, lengths)
    bins = within + np.repeat(starts, lengths)
    return Histograms(np.where(starts < 0, -1, lengths), bins, stored["hist"], int(stored["hist_size"][0]))


def _packed_histograms(hists: list[Any]) -> bytes | None:
    there = [hist for hist in hists if hist is not None]
    if not there:
        return None
    used = [np.flatnonzero(hist) for hist in there]
    lengths = iter([len(some) for some in used])
    return _zipped(
        lengths=np.asarray([-1 if hist is None else next(lengths) for hist in hists], np.int32),
        bins=np.concatenate(used).astype(np.uint16),
        counts=np.concatenate([hist[some] for hist, some in zip(there, used, strict=True)]).astype(np.int64),
        size=np.asarray([len(there[0])], np.int32),
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


def _zipped(**arrays: Any) -> bytes:
    out = io.BytesIO()
    np.savez(out, **arrays)
    return zlib.compress(out.getvalue(), 1)


def _unzipped(stored: bytes) -> dict[str, Any]:
    with np.load(io.BytesIO(zlib.decompress(stored)), allow_pickle=False) as arrays:
        return {name: arrays[name] for name in arrays.files}
