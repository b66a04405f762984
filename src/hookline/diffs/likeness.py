"""Likeness: places that have other names, paired by what they are, when they run and what comes out of them."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from hookline.diffs.naming import COMPOSED, kinds_of, parent

if TYPE_CHECKING:
    from hookline.diffs.entries import Entry

CLOSE = 1e-3
"""Norms that differ by no more than this share are the same value's."""

NUMBERS, BELOW, TYPE, EXACT, ALL, LAST, INDEX, CALLS = 16, 8, 4, 4, 4, 2, 2, 1
"""What speaks for a pair: the same norms, the same paired place above, the same kind of module, the same shapes,
such shapes up to the order of axes of all outputs and not of the first alone, the same last part of the name, the
same numbers in it, as many calls."""

Pairs = list[tuple["Entry", "Entry"]]


def by_order(a: Sequence[Entry], b: Sequence[Entry], known: Mapping[str, str], exact: bool = False) -> Pairs:
    """Pairs of the same type and shape in the same order, as many as there can be.

    `known` are names that were paired before. It is done twice: the second time it is known which containers are a
    pair, and what lies in them belongs together. `exact`: a permuted shape is another one.
    """
    if not a or not b:
        return []
    weights = _weights(a, b, known, exact)
    found: Pairs = []
    for _ in range(2):
        below = _below(a, b, {**known, **{one.name: other.name for one, other in found}})
        found = [(a[i], b[j]) for i, j in _heaviest(weights + np.uint8(BELOW) * (below & (weights > 0)))]
    return found


def by_values(a: Sequence[Entry], b: Sequence[Entry], known: Mapping[str, str]) -> Pairs:
    """Pairs whose outputs have the same norms and, up to the order of axes, the same shape, in any order.

    Two kinds of modules that are known and not the same are never a pair, nor is a known one and one that holds
    others: what goes into it would be something else. Of several, the one that does the same comes first, then the
    one that runs at the same time.
    """
    if not a or not b:
        return []
    types = _likeness(a, b, known)
    same = _close([one.numbers for one in a], [one.numbers for one in b]) & _permuted(a, b)
    same &= (types > 0) | _unlike(a, b, known)
    free = np.ones(len(b), bool)
    at = np.arange(len(b)) / len(b)
    found: dict[int, int] = {}
    for like in (2, 1, 0):
        for i in range(len(a)):
            options = np.flatnonzero(same[i] & free & (types[i] == like))
            if i not in found and len(options):
                j = int(options[np.argmin(np.abs(at[options] - i / len(a)))])
                found[i], free[j] = j, False
    return [(a[i], b[j]) for i, j in sorted(found.items())]


def _weights(a: Sequence[Entry], b: Sequence[Entry], known: Mapping[str, str], exact: bool) -> NDArray[np.uint8]:
    """What speaks for each pair, 0 where it can't be one; not yet what lies above it."""
    types = _likeness(a, b, known)
    same = _equal([one.shapes for one in a], [one.shapes for one in b])
    # Of several outputs the first counts: whether states or attention come with it is up to the framework.
    first = same if exact else _permuted(a, b, 1)
    told = np.array([bool(one.shapes) for one in a])[:, None] | (types == 2)
    can = (types > 0) & told & first
    found: NDArray[np.uint8] = can.astype(np.uint8)
    for weight, holds in (
        (NUMBERS, _close([one.numbers for one in a], [one.numbers for one in b])),
        (TYPE, types == 2),
        (EXACT, same),
        (ALL, same | _permuted(a, b)),
        (LAST, _equal(*([one.name.rpartition(".")[2] for one in side] for side in (a, b)))),
        (INDEX, _equal(*([re.findall(r"\d+", one.name) for one in side] for side in (a, b)))),
        (CALLS, _equal([one.calls for one in a], [one.calls for one in b])),
    ):
        found += np.uint8(weight) * (holds & can)
    return found


def _below(a: Sequence[Entry], b: Sequence[Entry], pairs: Mapping[str, str]) -> NDArray[np.bool_]:
    """Which have the same paired place above them."""
    back = {other: name for name, other in pairs.items()}
    return _equal([_above(one.name, pairs) for one in a], [back.get(_above(one.name, back) or "") for one in b])


def _heaviest(weights: NDArray[np.uint8]) -> list[tuple[int, int]]:
    """Pairs (row, column) that both rise: as many as there can be, and of these the heaviest."""
    rows, columns = weights.shape
    pair = int(weights.max()) * min(rows, columns) + 1  # more than all weights together
    best = np.zeros((rows + 1, columns + 1), np.int64)
    for i in range(rows):
        with_row = np.where(weights[i] > 0, best[i, :-1] + (weights[i] + np.int64(pair)), best[i, 1:])
        np.maximum(with_row, best[i, 1:], out=with_row)
        np.maximum.accumulate(with_row, out=best[i + 1, 1:])
    found, i, j = [], rows, columns
    while i and j:
        if best[i, j] == best[i - 1, j]:
            i -= 1
        elif best[i, j] == best[i, j - 1]:
            j -= 1
        else:
            i, j = i - 1, j - 1
            found.append((i, j))
    return found[::-1]


def _likeness(a: Sequence[Entry], b: Sequence[Entry], known: Mapping[str, str]) -> NDArray[np.uint8]:
    """How like the types are."""
    return _table(*_types(a, b, known), lambda one, other: like(one[0], other[0], one[1], other[1]))


def _unlike(a: Sequence[Entry], b: Sequence[Entry], known: Mapping[str, str]) -> NDArray[np.bool_]:
    """Which may be the same though their types say nothing of it."""

    def asked(one: tuple[str, bool], other: tuple[str, bool]) -> bool:
        kinds, theirs = kinds_of(one[0]), kinds_of(other[0])
        return (
            not (kinds and theirs) and not (kinds - COMPOSED and other[1]) and not (theirs - COMPOSED and one[1])
        )

    return _table(*_types(a, b, known), asked) > 0


def _types(
    a: Sequence[Entry], b: Sequence[Entry], known: Mapping[str, str]
) -> tuple[list[tuple[str, bool]], list[tuple[str, bool]]]:
    """For each place its type, and whether it holds others."""
    containers_a = _containers([*(one.name for one in a), *known])
    containers_b = _containers([*(one.name for one in b), *known.values()])
    return [(one.type, one.name in containers_a) for one in a], [(one.type, one.name in containers_b) for one in b]


def _permuted(a: Sequence[Entry], b: Sequence[Entry], most: int | None = None) -> NDArray[np.bool_]:
    """Which shapes, of the first so many outputs, are the same up to the order of axes."""
    return _equal([_sorted(one.shapes[:most]) for one in a], [_sorted(one.shapes[:most]) for one in b])


def like(one: str, other: str, one_holds: bool = False, other_holds: bool = False) -> int:
    """2 for types that do the same, 1 for those that may, 0 else. What holds others may have any name."""
    if not one or not other:  # nobody knows
        return int(one_holds == other_holds)
    if one == other or kinds_of(one) & kinds_of(other):
        return 2
    if kinds_of(one) and kinds_of(other):
        return 0
    if one_holds != other_holds:  # attention in one piece, and attention of several modules
        return int(bool(kinds_of(other if one_holds else one) & COMPOSED))
    short, long = sorted((one.lower(), other.lower()), key=len)
    return int(one_holds or long.endswith(short))


def _containers(names: Sequence[str]) -> set[str]:
    """The names of what holds others, and of all above it."""
    found = set[str]()
    for name in names:
        above = parent(name)
        while above is not None and above not in found:
            found.add(above)
            above = parent(above)
    return found


def _above(name: str, paired: Mapping[str, str]) -> str | None:
    """The nearest place above it that is paired."""
    above = parent(name)
    while above is not None and above not in paired:
        above = parent(above)
    return above


def _sorted(shapes: tuple[tuple[int, ...], ...]) -> tuple[tuple[int, ...], ...]:
    return tuple(tuple(sorted(shape)) for shape in shapes)


def _table(a: Sequence[Any], b: Sequence[Any], asked: Any) -> NDArray[np.uint8]:
    """For each of `a` and of `b` what `asked(one, other)` says; it is asked once for equal ones."""
    rows, columns = list(dict.fromkeys(a)), list(dict.fromkeys(b))
    small = np.array([[asked(one, other) for other in columns] for one in rows], np.uint8)
    at_row, at_column = ({key: at for at, key in enumerate(keys)} for keys in (rows, columns))
    picked: NDArray[np.uint8] = small[np.ix_([at_row[one] for one in a], [at_column[one] for one in b])]
    return picked


def _equal(a: Sequence[Any], b: Sequence[Any]) -> NDArray[np.bool_]:
    """Which of `a` equal which of `b`."""
    numbers: dict[str, int] = {}
    rows, columns = ([numbers.setdefault(repr(one), len(numbers)) for one in side] for side in (a, b))
    same: NDArray[np.bool_] = np.array(rows)[:, None] == np.array(columns)[None, :]
    return same


def _close(a: Sequence[Sequence[float]], b: Sequence[Sequence[float]]) -> NDArray[np.bool_]:
    """Which norms of `a` are those of which of `b`; zeros tell nothing, Inf and NaN are like nothing."""
    most = max((len(one) for side in (a, b) for one in side), default=0)
    same = _equal([len(one) for one in a], [len(one) for one in b])
    same &= np.array([any(one) for one in a])[:, None]
    for at in range(most):
        rows, columns = (np.array([one[at] if at < len(one) else 0.0 for one in side]) for side in (a, b))
        rows = np.where(np.isfinite(rows), rows, np.nan)[:, None]
        same &= (columns >= rows * (1 - CLOSE)) & (columns <= rows / (1 - CLOSE))
    return same
