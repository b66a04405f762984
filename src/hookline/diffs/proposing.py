"""Proposing: a map between two recordings, found by names, types, shapes, order and values, to be edited."""

from __future__ import annotations

import itertools
import os
import re
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hookline.diffs.aligning import align
from hookline.diffs.entries import Entry
from hookline.diffs.mapping import Map, write_map
from hookline.diffs.reading import FORWARD, Key, Side
from hookline.diffs.rules import LAYOUTS, Layout, Rule, arranged
from hookline.recording.recording import Recording

_NUMBER = re.compile(r"(?<![^.])\d+(?![^.])")  # a part of a name that is a number
MOST_AXES = 5
"""Of an array with more of them not all orders are tried."""
CLEARLY = 0.1
"""An order of axes is taken for a better one where it leaves no more than this share of the difference."""

Arrays = list[tuple[NDArray[Any], NDArray[Any]]]
"""Tensors that cross a place, in A and in B."""


def propose_map(recording_a: Recording, recording_b: Recording, path: str | os.PathLike[str] | None = None) -> Map:
    """A map from the places of one recording to those of another, written to `path` if there is one.

    The file says of each pair by what it was found, and lists what has no counterpart: edit it, and give it to
    `diff`. Where B has the axes of its arrays in another order, that is part of it.
    """
    a, b = Side(recording_a), Side(recording_b)

    def arrays(one: str, other: str) -> Arrays:
        return [
            (a.array(mine), b.array(its))
            for kind in FORWARD
            if kind in a.kinds and kind in b.kinds
            for mine, its in zip(a.leaves(Key(one, kind)), b.leaves(Key(other, kind)), strict=False)
        ]

    found = proposed(a.entries(), b.entries(), arrays)
    if path is not None:
        write_map(found, path)
    return found


def proposed(a: Sequence[Entry], b: Sequence[Entry], arrays: Callable[[str, str], Arrays] | None = None) -> Map:
    """A map between two sides; by `arrays` the order of axes is told also where the shapes do not tell it."""
    alignment = align(a, b)
    ours, theirs = ({entry.name: entry for entry in side} for side in (a, b))
    rules = []
    for one, other in alignment.pairs:
        crossed = _empty(ours[one], theirs[other]) if arrays is None else arrays(one, other)
        layout = _layout([pair for pair in crossed if pair[0].ndim == pair[1].ndim])
        rules.append(Rule(one, other, layout, alignment.how[one]))
    remarks = [f"only A has {_shown(ours[name])}" for name in alignment.missing]
    remarks += [f"only B has {_shown(theirs[name])}" for name in alignment.extra]
    remarks += [
        f"{_shown((ours if side == 'a' else theirs)[name])} of {side.upper()} is a wrapper's: see the place itself"
        for side, name in alignment.wrappers
    ]
    return Map(_gathered(rules, list(ours)), remarks=remarks)


def _gathered(rules: list[Rule], names: list[str]) -> list[Rule]:
    """The same rules, with one for all that differ in the numbers of layers only, where it says the same.

    >>> rules = [Rule("h.0.fc", "l.0.up"), Rule("h.1.fc", "l.1.up")]
    >>> [(one.a, one.b) for one in _gathered(rules, ["h.0.fc", "h.1.fc"])]
    [('h.*.fc', 'l.*.up')]
    """
    groups: dict[tuple[str, str, Layout], list[Rule]] = {}
    for rule in rules:
        a, b = rule.a, rule.b or ""
        if _NUMBER.findall(a) == _NUMBER.findall(b):
            a, b = _NUMBER.sub("*", a), _NUMBER.sub("*", b)
        groups.setdefault((a, b, rule.layout), []).append(rule)
    found: list[Rule] = []
    for (a, b, layout), group in groups.items():
        notes = "; ".join(dict.fromkeys(rule.note for rule in group))
        glob = Rule(a, b, layout, f"{len(group)} places: {notes}")
        said = {rule.a for rule in group}
        alone = len(group) == 1 or any(glob.means(name) and name not in said for name in names)
        found += group if alone else [glob]
    gathered = Map(found)
    return found if all(gathered.other(rule.a) == rule.b for rule in rules) else rules


def _empty(one: Entry, other: Entry) -> Arrays:
    """Arrays of the shapes of two places, which take no memory."""
    zero = np.float32(0)
    pairs = zip(one.shapes, other.shapes, strict=False)
    return [(np.broadcast_to(zero, mine), np.broadcast_to(zero, its)) for mine, its in pairs]


def _layout(arrays: Arrays) -> Layout:
    """How B's arrays become A's: by the shapes, and by the values where several ways have the same shapes."""
    axes = {one.ndim for one, _ in arrays}
    options: list[Layout] = [None, *LAYOUTS]
    if len(axes) == 1 and max(axes) <= MOST_AXES:
        options += itertools.permutations(range(max(axes)))
    fitting = [
        layout for layout in options if all(arranged(other, layout).shape == one.shape for one, other in arrays)
    ]
    if not fitting or not arrays:
        return None
    errors = [_apart(arrays, layout) for layout in fitting]
    best = int(np.argmin(errors))
    return fitting[best] if errors[best] < CLEARLY * errors[0] else fitting[0]


def _apart(arrays: Arrays, layout: Layout) -> float:
    """How far arrays are apart, where those of B are put into the order of A's."""
    found = 0.0
    with np.errstate(all="ignore"):
        for one, other in arrays:
            wide = np.result_type(one, other, np.float64)
            gap = np.abs(one.astype(wide) - arranged(other, layout))
            found += float(np.nan_to_num(gap).sum())
    return found


def _shown(entry: Entry) -> str:
    shape = f" {entry.shapes[0]}" if entry.shapes else ""
    return f'"{entry.name}"' + (f" ({entry.type}{shape})" if entry.type else shape)
