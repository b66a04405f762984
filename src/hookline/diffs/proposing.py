"""Proposing: a map between two recordings, found by names, types, shapes, order and values, to be edited."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hookline.diffs.aligning import Entry, align
from hookline.diffs.mapping import Map, write_map
from hookline.diffs.rules import LAYOUTS, Layout, Rule, arranged
from hookline.recording.recording import Recording

MOST_AXES = 5
"""Of an array with more of them not all orders are tried."""
CLEARLY = 0.1
"""An order of axes is taken for a better one where it leaves no more than this share of the difference."""

Arrays = Callable[[str, str], tuple[NDArray[Any], NDArray[Any]] | None]
"""The first tensor that leaves a place of A and one of B; None where there is none."""


def propose_map(recording_a: Recording, recording_b: Recording, path: str | os.PathLike[str] | None = None) -> Map:
    """A map from the places of one recording to those of another, written to `path` if there is one.

    The file says of each pair by what it was found, and lists what has no counterpart: edit it, and give it to
    `diff`. Where B has the axes of its arrays in another order, that is part of it.
    """
    from hookline.diffs.reading import Key, Side

    a, b = Side(recording_a), Side(recording_b)

    def arrays(one: str, other: str) -> tuple[NDArray[Any], NDArray[Any]] | None:
        ones, others = a.leaves(Key(one, "output")), b.leaves(Key(other, "output"))
        return (a.array(ones[0]), b.array(others[0])) if ones and others else None

    found = proposed(a.entries(), b.entries(), arrays)
    if path is not None:
        write_map(found, path)
    return found


def proposed(a: Sequence[Entry], b: Sequence[Entry], arrays: Arrays = lambda one, other: None) -> Map:
    """A map between two sides; with `arrays` the order of axes is told by values where shapes do not tell it."""
    alignment = align(a, b)
    ours, theirs = ({entry.name: entry for entry in side} for side in (a, b))
    rules = []
    for one, other in alignment.pairs:
        layout = _layout(ours[one], theirs[other], arrays(one, other))
        rules.append(Rule(one, other, layout, alignment.how[one]))
    remarks = [f"only A has {_shown(ours[name])}" for name in alignment.missing]
    remarks += [f"only B has {_shown(theirs[name])}" for name in alignment.extra]
    remarks += [
        f"{_shown((ours if side == 'a' else theirs)[name])} of {side.upper()} is a wrapper's: see the place itself"
        for side, name in alignment.wrappers
    ]
    return Map(rules, remarks=remarks)


def _layout(one: Entry, other: Entry, arrays: tuple[NDArray[Any], NDArray[Any]] | None) -> Layout:
    """How B's array becomes A's: by the shapes, and by the values where several ways have the same shape."""
    if not one.shapes or not other.shapes or len(one.shapes[0]) != len(other.shapes[0]):
        return None
    wanted = one.shapes[0]
    empty = np.broadcast_to(np.float32(0), other.shapes[0])  # takes no memory
    options: list[Layout] = [None, *LAYOUTS]
    options = [layout for layout in options if arranged(empty, layout).shape == wanted]
    if not options and len(wanted) <= MOST_AXES:
        every = itertools.permutations(range(len(wanted)))
        options = [axes for axes in every if empty.transpose(axes).shape == wanted]
    if len(options) < 2 or arrays is None:
        return options[0] if options else None
    errors = [_apart(arrays, layout) for layout in options]
    best = int(np.argmin(errors))
    return options[best] if errors[best] < CLEARLY * errors[0] else options[0]


def _apart(arrays: tuple[NDArray[Any], NDArray[Any]], layout: Layout) -> float:
    """How far two arrays are apart, where one is put into the order of the other."""
    one, other = arrays
    with np.errstate(all="ignore"):
        gap = np.abs(one.astype(np.float64) - arranged(other, layout).astype(np.float64))
    return float(np.nan_to_num(gap).sum())


def _shown(entry: Entry) -> str:
    shape = f" {entry.shapes[0]}" if entry.shapes else ""
    return f'"{entry.name}"' + (f" ({entry.type}{shape})" if entry.type else shape)
