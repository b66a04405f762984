"""Entries: frames of a run's file, what is known of them before they are read, and whether that is true."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from hookline import bins
from hookline.histograms import Histograms
from hookline.rows import Row
from hookline.runfiles.frames import LARGEST, Block, Damaged, unpack_histograms
from hookline.runfiles.schema import GROUP


class Frame(NamedTuple):
    """Rows that were written together: their statistics as arrays, what else they have, and their histograms."""

    number: int
    group: int
    columns: dict[str, Any]
    extra: list[Row]
    hists: Histograms | None


class Entry(NamedTuple):
    """What is known of a frame before it is read; `rows`: how many, None where the format does not tell."""

    number: int
    group: int
    first: int
    last: int
    rows: int | None


def histograms_of(block: Block, rows: int) -> Histograms:
    hists = unpack_histograms(block)
    if len(hists.lengths) != rows:
        raise Damaged("it has other histograms than rows")
    if hists.size != bins.COUNT and (hists.lengths >= 0).any():
        raise Damaged(f"it has histograms of {hists.size} bins, and not of {bins.COUNT}")
    return hists


def check(entry: Entry, columns: dict[str, Any]) -> None:
    """Damaged where the rows are not those that were announced."""
    series, steps = columns["series"], columns["step"]
    if not len(series) or (entry.rows is not None and len(series) != entry.rows):
        raise Damaged(f"it has {len(series)} rows, and {entry.rows} were written")
    if (series < 0).any() or (series // GROUP != entry.group).any():
        raise Damaged("it has rows of other series")
    if int(steps.min()) < max(entry.first, -LARGEST) or int(steps.max()) > min(entry.last, LARGEST):
        raise Damaged("it has rows of other steps")


def overlapping(entries: list[Entry]) -> tuple[set[int], set[int]]:
    """The numbers of frames that may have a row which a later frame has too, and of those later frames."""
    older, newer = set[int](), set[int]()
    lowest = LARGEST + 1
    for entry in reversed(entries):
        if lowest <= entry.last:
            older.add(entry.number)
        lowest = min(lowest, entry.first)
    highest = -LARGEST - 1
    for entry in entries:
        if highest >= entry.first:
            newer.add(entry.number)
        highest = max(highest, entry.last)
    return older, newer


def last_of_each(keys: Any) -> Any:
    """Which places have a key that no later place has; most often all of them."""
    if len(set(keys.tolist())) == len(keys):
        return np.ones(len(keys), bool)
    _, from_the_end = np.unique(keys[::-1], return_index=True)
    mask = np.zeros(len(keys), bool)
    mask[len(keys) - 1 - from_the_end] = True
    return mask


def keys_of(frame: Frame) -> Any:
    """A number for each row of a frame that says of which series and step it is."""
    return frame.columns["step"] * GROUP + frame.columns["series"] % GROUP
