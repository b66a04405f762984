"""Run reading: the series of a stored run by what they are about, and their numbers, some series at a time."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from itertools import compress
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hookline.errors import InvalidArgument, RunError
from hookline.histograms import Histograms
from hookline.rows import FINGERPRINT, OF_PARAMETERS, SCALAR, STATISTICS
from hookline.runs.run import Run, open_run
from hookline.runs.state import state_of
from hookline.wiring import Wiring

Array = NDArray[Any]

AT = {name: place for place, name in enumerate(STATISTICS)}
"""Where a statistic is in `Numbers.stats`."""
DIGITS = re.compile("[0-9a-f]*")
ENDS = {
    "running": "it is still being written",
    "silent": "it has no end, as if its process was killed",
    "failed": "it ended by an exception",
    "interrupted": "it was interrupted",
}


class Key(NamedTuple):
    """What a series of one run is about."""

    site: str
    kind: str
    call: int
    mode: str
    rank: int


class Numbers(NamedTuple):
    """One series: its steps in order, a line of `stats` for each of STATISTICS, and what each row has besides.

    `prints` are fingerprints of the bits, 0 where `printed` says that a row has none.
    """

    steps: Array
    stats: Array
    prints: Array
    printed: Array
    hists: Histograms | None

    def at(self, places: Array) -> Numbers:
        """The rows at these places."""
        hists = None if self.hists is None else self.hists.at(places)
        return Numbers(self.steps[places], self.stats[:, places], self.prints[places], self.printed[places], hists)

    def between(self, start: int, end: int, entries: Array | None) -> Numbers:
        """The rows from one place to another; `entries` says where the histogram of each row begins."""
        hists = self.hists
        if hists is not None and entries is not None:
            first, last = int(entries[start]), int(entries[end])
            parts = hists.lengths[start:end], hists.bins[first:last], hists.counts[first:last]
            hists = Histograms(*parts, hists.size)
        of = slice(start, end)
        return Numbers(self.steps[of], self.stats[:, of], self.prints[of], self.printed[of], hists)

    def column(self, name: str) -> Array:
        """One statistic over the steps."""
        found: Array = self.stats[AT[name]]
        return found


class StoredRun:
    """One of two runs that are compared; a folder is opened, and closed by `close`."""

    def __init__(self, source: Run | str | Path) -> None:
        if not isinstance(source, (Run, str, Path)):
            raise InvalidArgument(f"expected a Run or the folder of one, got a {type(source).__name__}.")
        self._is_own = not isinstance(source, Run)
        self.run = source if isinstance(source, Run) else open_run(source)
        self.label = str(self.run.path)
        self._where: dict[Key, list[tuple[Any, int]]] = {}
        for reader in sorted(self.run.readers, key=lambda one: int(one.meta.get("rank", 0))):
            rank = int(reader.meta.get("rank", 0))
            for number, one in reader.series().items():
                key = Key(one["site"], one["kind"], one["call"], one["mode"], rank)
                self._where.setdefault(key, []).append((reader, number))

    def close(self) -> None:
        """Closes the files of a folder that was opened here."""
        if self._is_own:
            self.run.close()

    @cached_property
    def keys(self) -> list[Key]:
        """Its series without scalars, those of one rank in the order in which they first came."""
        return [key for key in self._where if key.kind != SCALAR]

    @cached_property
    def known(self) -> frozenset[Key]:
        """The same, to be looked up."""
        return frozenset(self.keys)

    def has(self, key: Key) -> bool:
        """Whether there is such a series, scalars too."""
        return key in self._where

    @cached_property
    def ranks(self) -> list[int]:
        """The processes that have rows."""
        return sorted({key.rank for key in self.keys})

    @cached_property
    def kinds(self) -> set[str]:
        """What its rows are of."""
        return {key.kind for key in self.keys}

    @cached_property
    def modes(self) -> set[str]:
        """The modes in which its model ran."""
        return {key.mode for key in self.keys}

    @cached_property
    def steps(self) -> list[int]:
        """The steps that have a row."""
        return self.run.steps

    @cached_property
    def meta(self) -> dict[str, Any]:
        """What the run tells of itself."""
        return self.run.meta

    @cached_property
    def wiring(self) -> Wiring:
        """How the training hangs together, as far as the run has noted it."""
        return self.run.wiring

    @cached_property
    def types(self) -> dict[str, str]:
        """The types of its modules, by name."""
        return {str(name): str(kind) for name, kind in self.meta.get("sites", [])}

    def module_of(self, site: str, kind: str) -> str:
        """The module that a site belongs to: itself, that of an operator, or for a parameter the nearest above."""
        site = site.partition("/")[0]
        if kind not in OF_PARAMETERS:
            return site
        while site and site not in self.types:
            site = site.rpartition(".")[0]
        return site

    def check(self) -> None:
        """RunError where there is nothing to compare."""
        if not self.keys or not self.steps:
            raise RunError(
                f"the run in {self.label} has no rows: nothing was recorded, or none of it can be read."
            )

    def state(self) -> str | None:
        """Why the run may be only a part of what it was meant to be, in words; None where it ended normally."""
        state = str(state_of(self.meta, self.run.path)["state"])
        return ENDS.get(state) if self.keys else None

    def numbers(self, keys: Iterable[Key], *, hists: bool = False) -> dict[Key, Numbers]:
        """The numbers of these series; of a step that was written twice, what was written last."""
        names = list(dict.fromkeys(key for key in keys if key in self._where))
        wanted: dict[Any, dict[int, int]] = {}
        for place, key in enumerate(names):
            for reader, number in self._where[key]:
                wanted.setdefault(reader, {})[number] = place
        parts: list[tuple[Array, Numbers]] = []
        for reader, mine in wanted.items():
            number_of = np.zeros(1 + max(mine), np.int64)
            number_of[list(mine)] = list(mine.values())
            for frame, places in reader.parts(set(mine), hists=hists):
                if len(places):
                    parts.append((number_of[frame.columns["series"][places]], _numbers(frame, places)))
        return {names[place]: one for place, one in _by_series(parts)}

    def chunks(self, keys: Sequence[Key], rows: int) -> Iterator[Sequence[Key]]:
        """The series, some at a time, with about so many rows."""
        size = max(1, rows // max(1, len(self.steps)))
        for start in range(0, len(keys), size):
            yield keys[start : start + size]


def _numbers(frame: Any, places: Array) -> Numbers:
    """The rows of a frame at some places, whatever series they are of."""
    stats = np.stack([frame.columns[name][places] for name in STATISTICS]).astype(np.float64)
    texts = [frame.extra[place].get(FINGERPRINT) for place in places.tolist()]
    hists = None if frame.hists is None else frame.hists.at(places)
    return Numbers(frame.columns["step"][places], stats, *_fingerprints(texts), hists)


def _fingerprints(texts: list[Any]) -> tuple[Array, Array]:
    """The numbers that fingerprints are, and which rows have one; a file may have anything in its place."""
    are = [type(text) is str and len(text) == 16 for text in texts] if any(texts) else [False] * len(texts)
    if not DIGITS.fullmatch("".join(compress(texts, are))):
        are = [is_one and DIGITS.fullmatch(text) is not None for text, is_one in zip(texts, are, strict=True)]
    prints, printed = np.zeros(len(texts), np.uint64), np.asarray(are, bool)
    prints[printed] = np.frombuffer(bytes.fromhex("".join(compress(texts, are))), ">u8")
    return prints, printed


def _by_series(parts: list[tuple[Array, Numbers]]) -> Iterator[tuple[int, Numbers]]:
    """The rows of all parts, those of each series together and in the order of their steps."""
    if not parts:
        return
    series = np.concatenate([names for names, _ in parts])
    some = [one for _, one in parts]
    hists = [one.hists for one in some if one.hists is not None]
    whole = Numbers(
        np.concatenate([one.steps for one in some]),
        np.concatenate([one.stats for one in some], axis=1),
        np.concatenate([one.prints for one in some]),
        np.concatenate([one.printed for one in some]),
        Histograms.joined(hists) if hists else None,
    )
    order = np.lexsort((whole.steps, series))  # stable: what was written later is later among equals
    is_last = np.append((np.diff(series[order]) > 0) | (np.diff(whole.steps[order]) > 0), True)
    order = order[is_last]
    whole, series = whole.at(order), series[order]
    entries = None if whole.hists is None else np.append(0, np.cumsum(np.maximum(whole.hists.lengths, 0)))
    ends = [*(np.flatnonzero(np.diff(series)) + 1).tolist(), len(series)]
    for start, end in zip([0, *ends], ends, strict=False):
        yield int(series[start]), whole.between(start, end, entries)
