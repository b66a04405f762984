"""Frames: many rows of statistics as compressed columns; histograms apart, since few readers want them.

A block is plain memory, column after column: an archive of arrays (npz) takes longer to open than to read.
What a row has beyond the fixed columns (a ratio, statistics of users, channels) is kept as it is.

Blocks come from files, which may be damaged or lie: every number in them is checked before it is used, and what is
wrong is told by `Damaged`.
"""

from __future__ import annotations

import io
import json
import math
import struct
import zipfile
import zlib
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from hookline.histograms import Histograms
from hookline.rows import COUNTS, FIXED, FLOATS, Row, Rows, Series

NUMBERS = ("series", "step", *COUNTS)
FORMAT_1 = (*NUMBERS, *FLOATS, "extra", "hist", "hist_start", "hist_length", "hist_size")
MOST_BINS = 4096
INTEGER, FLOAT, BIN = np.dtype("<i8"), np.dtype("<f8"), np.dtype("<u2")
MOST_BYTES = 128 << 20
"""So large a block may be when it is unpacked; the writer makes blocks of a few megabytes."""
LARGEST = 2**53
"""Steps and other whole numbers up to this are exact in every program."""
NPZ = b"PK\x03\x04"
"""How a block of format 1 begins; others begin with the number of their rows, which is never 67,324,752."""


SEAL = struct.Struct("<4sI")
MARK = b"HLF3"


class Damaged(ValueError):
    """Bytes that are not what was written."""


class Block(NamedTuple):
    """Rows as bytes: their statistics, and their histograms (None where no row has one).

    `size` is how many bytes they are unpacked, where they were just packed.
    """

    stats: bytes
    hists: bytes | None = None
    size: int = 0


def pack(rows: Rows, numbers: Sequence[int]) -> Block:
    """A block with these rows; `numbers` are those of their series.

    >>> rows = Rows.of([{"site": "fc", "kind": "output", "call": 0, "mode": "train", "step": 3, "ratio": 0.1}])
    >>> [(row["site"], row["step"], row["ratio"]) for row in unpack(pack(rows, [7]), {7: rows.series[0]})]
    [('fc', 3, 0.1)]
    """
    stats = _joined(
        np.asarray([len(rows)], INTEGER),
        np.asarray(numbers, INTEGER),
        rows.steps.astype(INTEGER, copy=False),
        rows.integers.astype(INTEGER, copy=False),
        rows.floats.astype(FLOAT, copy=False),
        json.dumps(list(rows.extra)).encode() if any(rows.extra) else b"",
    )
    hists = _packed(rows.hists)
    size = len(stats) + len(hists or b"")
    return Block(zlib.compress(stats, 1), None if hists is None else zlib.compress(hists, 1), size)


def unpack(block: Block, series: Mapping[int, Series], rank: int = 0) -> Rows:
    """The rows of a block that was packed here; `series` are those that its numbers stand for."""
    columns, extra = unpack_columns(block.stats)
    return rows_of(columns, extra, unpack_histograms(block), series, rank, np.arange(len(extra)))


def rows_of(
    columns: Mapping[str, Any],
    extra: list[Row],
    hists: Histograms,
    series: Mapping[int, Series],
    rank: int,
    places: Any,
) -> Rows:
    """The rows that have these columns, those at some places; `series` are those that their numbers stand for."""
    return Rows(
        [series[number] for number in columns["series"][places].tolist()],
        columns["step"][places],
        np.stack([columns[name][places] for name in COUNTS]),
        np.stack([columns[name][places] for name in FLOATS]),
        hists.at(places),
        [extra[place] for place in places.tolist()],
        rank,
    )


def unpack_columns(stats: bytes) -> tuple[dict[str, Any], list[Row]]:
    """The statistics of a block as arrays, by name, and what else each row has."""
    data = _unzipped(stats)
    if data.startswith(NPZ):
        columns = _format_1(data)
        count = len(columns["series"])
        if any(columns[name].shape != (count,) for name in (*NUMBERS, *FLOATS)):
            raise Damaged("its columns have different lengths")
        return columns, _extra(columns["extra"].tobytes(), count)
    (count,) = _integers(data, 1, 0).tolist()
    integers = _integers(data, count * len(NUMBERS), 8).reshape(len(NUMBERS), count)
    at = 8 * (1 + count * len(NUMBERS))
    floats = _numbers(data, FLOAT, count * len(FLOATS), at).reshape(len(FLOATS), count)
    columns = {**dict(zip(NUMBERS, integers, strict=True)), **dict(zip(FLOATS, floats, strict=True))}
    return columns, _extra(data[at + 8 * count * len(FLOATS) :], count)


def unpack_places(stats: bytes) -> dict[str, Any]:
    """The series and the step of each row of a block, unpacked no further than these; the rest is not checked."""
    unpacking = zlib.decompressobj()
    try:
        data = unpacking.decompress(stats, INTEGER.itemsize)
        if len(data) < INTEGER.itemsize or data.startswith(NPZ):
            return unpack_columns(stats)[0]
        (count,) = _integers(data, 1, 0).tolist()
        if not 0 < count <= MOST_BYTES // INTEGER.itemsize:
            raise Damaged(f"it announces {count} rows")
        data = unpacking.decompress(unpacking.unconsumed_tail, 2 * count * INTEGER.itemsize)
    except zlib.error as error:
        raise Damaged(str(error)) from error
    series, steps = _integers(data, 2 * count, 0).reshape(2, count)
    return {"series": series, "step": steps}


def unpack_histograms(block: Block) -> Histograms:
    """The histograms of a block."""
    data = _unzipped(block.stats if block.hists is None else block.hists)
    if block.hists is not None:
        rows, entries, size = _integers(data, 3, 0).tolist()
        lengths = _integers(data, rows, 24)
        counts = _integers(data, entries, 24 + 8 * rows)
        bins = _numbers(data, BIN, entries, 24 + 8 * (rows + entries))
        return _checked(Histograms(lengths, bins, counts, size))
    if not data.startswith(NPZ):
        (rows,) = _integers(data, 1, 0).tolist()
        if not 0 <= rows <= len(data):
            raise Damaged(f"it announces {rows} rows")
        return Histograms.none(rows)
    stored = _format_1(data)
    starts, lengths = stored["hist_start"], stored["hist_length"]
    if starts.shape != lengths.shape or stored["hist_size"].shape != (1,) or (lengths < 0).any():
        raise Damaged("its histograms have different lengths")
    if int(lengths.sum()) != stored["hist"].size:
        raise Damaged("its histograms are cut off")
    within = np.arange(lengths.sum()) - np.repeat(np.cumsum(lengths) - lengths, lengths)
    bins = within + np.repeat(starts, lengths)
    return _checked(
        Histograms(np.where(starts < 0, -1, lengths), bins, stored["hist"], int(stored["hist_size"][0]))
    )


def seal(data: bytes, key: str) -> bytes:
    """Bytes with a checksum, which also tells whether they stand where they were put (`key`).

    >>> unseal(seal(b"abc", "1 stats"), "1 stats")
    b'abc'
    """
    return SEAL.pack(MARK, zlib.crc32(data, zlib.crc32(key.encode()))) + data


def unseal(sealed: bytes, key: str) -> bytes:
    """What was sealed; Damaged where it is something else."""
    if len(sealed) < SEAL.size:
        raise Damaged("it is cut off")
    mark, crc = SEAL.unpack_from(sealed)
    data = sealed[SEAL.size :]
    if mark != MARK or crc != zlib.crc32(data, zlib.crc32(key.encode())):
        raise Damaged("its checksum does not agree")
    return data


def _checked(hists: Histograms) -> Histograms:
    """Histograms whose numbers fit together."""
    lengths, which, counts, size = hists
    if not 0 < size <= MOST_BINS:
        raise Damaged(f"it announces histograms of {size} bins")
    if (lengths < -1).any() or (lengths > size).any() or int(np.maximum(lengths, 0).sum()) != len(counts):
        raise Damaged("its histograms are cut off")
    if len(which) and (int(which.max()) >= size or int(which.min()) < 0 or int(counts.min()) < 0):
        raise Damaged("its histograms have bins that there are not")
    return hists


def _extra(text: bytes, count: int) -> list[Row]:
    """What each row has besides, from JSON."""
    if not text:
        return [{}] * count
    try:
        found = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise Damaged(f"what its rows have besides is no JSON: {error}") from error
    if not isinstance(found, list) or len(found) != count:
        raise Damaged("what its rows have besides is not one entry for each")
    for row in found:
        if not isinstance(row, dict) or not FIXED.isdisjoint(row):
            raise Damaged("what its rows have besides has names of their own columns")
        for value in row.values():
            if isinstance(value, int) and abs(value) > LARGEST:
                raise Damaged("its rows have numbers that are too large")
        if not isinstance(row.get("ratio", 0.0), (int, float, type(None))):
            raise Damaged("a ratio of its rows is no number")
    return found


def _unzipped(data: bytes) -> bytes:
    """The bytes that were compressed, at most MOST_BYTES of them."""
    unpacking = zlib.decompressobj()
    try:
        found = unpacking.decompress(data, MOST_BYTES + 1)
    except zlib.error as error:
        raise Damaged(str(error)) from error
    if len(found) > MOST_BYTES:
        raise Damaged(f"it is larger than {MOST_BYTES >> 20} MB")
    if not unpacking.eof or unpacking.unused_data:
        raise Damaged("it is cut off, or longer than it was")
    return found


def _integers(data: bytes, count: int, at: int) -> Any:
    return _numbers(data, INTEGER, count, at)


def _numbers(data: bytes, dtype: np.dtype[Any], count: int, at: int) -> Any:
    """So many numbers from a place on, which have to be there."""
    if not 0 <= count <= (len(data) - at) // dtype.itemsize:
        raise Damaged(f"it announces {count} numbers where there is no room for them")
    return np.frombuffer(data, dtype, count, at)


def _packed(hists: Histograms) -> bytes | None:
    if not (hists.lengths >= 0).any():
        return None
    return _joined(
        np.asarray([len(hists.lengths), len(hists.counts), hists.size], INTEGER),
        hists.lengths.astype(INTEGER, copy=False),
        hists.counts.astype(INTEGER, copy=False),
        hists.bins.astype(BIN, copy=False),
    )


def _joined(*arrays: Any) -> bytes:
    return b"".join(array.tobytes() if isinstance(array, np.ndarray) else array for array in arrays)


def _format_1(data: bytes) -> dict[str, Any]:
    """The columns of a block of format 1: an npz archive, histograms included, each as a stretch of bins."""
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            if sum(one.file_size for one in archive.infolist()) > MOST_BYTES:
                raise Damaged(f"it is larger than {MOST_BYTES >> 20} MB")
            return {name: _format_1_array(archive.read(f"{name}.npy")) for name in FORMAT_1}
    except (
        zipfile.BadZipFile,
        zlib.error,
        KeyError,
        EOFError,
        NotImplementedError,
        RuntimeError,
        OSError,
    ) as error:
        raise Damaged(f"it is no archive of arrays: {error}") from error


def _format_1_array(data: bytes) -> Any:
    """One array of numbers, in numpy's own file format."""
    file = io.BytesIO(data)
    try:
        np.lib.format.read_magic(file)
        shape, _, dtype = np.lib.format.read_array_header_1_0(file)
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError) as error:
        raise Damaged(f"it has an array that can't be read: {error}") from error
    if dtype.kind not in "iuf" or len(shape) != 1 or math.prod(shape) * dtype.itemsize != len(data) - file.tell():
        raise Damaged("it has an array of another length than announced")
    return np.frombuffer(data, dtype, math.prod(shape), file.tell())
