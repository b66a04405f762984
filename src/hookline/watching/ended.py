"""Ended: what a step has when it is over, and what its rows have besides the statistics of the kernel."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hookline.backends.hashing import together
from hookline.lines import Reduced, Stats
from hookline.lines.columns import columns_of
from hookline.lines.kernel import Words
from hookline.lines.reduce import collect_channel_words
from hookline.lines.sheet import Sheet
from hookline.rows import COUNTS, FINGERPRINT, FLOATS, RATIO, STATISTICS, Row, Rows, Series

Lines = NDArray[np.int64]
"""Numbers of lines of a sheet."""


class EndedStep(NamedTuple):
    """A step that is over: calls have their numbers. `size` lines of the sheet are in use.

    Each row has its line; those of several parts have them all in `parts`. Its sheet can be used again if it
    `is_nobodys`: no other thread is still about to write into it.
    """

    sheet: Sheet
    size: int
    series: list[Series]
    lines: list[int]
    parts: dict[int, list[int]]
    channels: dict[Series, list[Reduced]]
    numbers: dict[tuple[Series, str], Any]
    is_nobodys: bool = False

    def lines_of_rows(self) -> list[list[int]]:
        """All the lines of each row."""
        return [self.parts.get(row, [line]) for row, line in enumerate(self.lines)]


def one_line_each(words: Words, ended: EndedStep, merged: Mapping[int, Stats]) -> tuple[Words, Lines]:
    """The line of each row, in words that have one more for each row of several parts."""
    found = np.asarray(ended.lines, np.int64)
    several = list(ended.parts)
    if several:
        found[several] = np.arange(len(words), len(words) + len(several))
        words = np.concatenate([words, np.stack([merged[row].words() for row in several])])
    return words, found


def add_fingerprints(more: list[Row], ended: EndedStep) -> None:
    """Adds to `more` the fingerprint of each row's tensors, if they are wanted and there."""
    prints = ended.sheet.fingerprints(ended.size)
    for row, lines in enumerate(ended.lines_of_rows() if prints is not None else ()):
        found = [prints[line] for line in lines] if prints is not None else []
        if None not in found:
            more[row] = {**more[row], FINGERPRINT: f"{together(one for one in found if one is not None):016x}"}


def add_besides(rows: Rows, more: list[Row], ended: EndedStep) -> None:
    """Adds to `more`, what each row has besides: numbers, statistics of channels, and ratios of updates."""
    updates = [row for row, series in enumerate(rows.series) if series[1] == "update"]
    if not (updates or ended.numbers or ended.channels):
        return
    where = {series: row for row, series in enumerate(rows.series)}
    for (series, name), number in ended.numbers.items():
        if (row := where.get(series)) is not None:
            more[row] = {**more[row], name: float(number)}
    for series, channels in _channels(ended.channels).items():
        more[where[series]] = {**more[where[series]], "channels": channels}
    l2 = rows.column("l2").tolist()
    for row in updates:
        site, _, call, mode = rows.series[row]
        if (weight := where.get((site, "param", call, mode))) is not None:
            ratio = l2[row] / l2[weight] if l2[weight] else float("nan")
            more[row] = {**more[row], RATIO: ratio}


def _channels(reduced: dict[Series, list[Reduced]]) -> dict[Series, Row]:
    """{statistic: [one number per channel]} of each row."""
    arrived = iter(collect_channel_words([part for parts in reduced.values() for part in parts]))
    found: dict[Series, Row] = {}
    for series, parts in reduced.items():
        words, *others = (next(arrived) for _ in parts)
        if others:
            same = [Stats.merged(map(Stats.from_words, lines)) for lines in zip(words, *others, strict=False)]
            words = np.stack([stats.words() for stats in same])
        integers, floats = columns_of(words)
        columns = dict(zip((*COUNTS, *FLOATS), [*integers.tolist(), *floats.tolist()], strict=True))
        found[series] = {name: columns[name] for name in STATISTICS}
    return found
