"""Aligning: which place of one computation is which place of another. Names and numbers only, no framework.

Each step takes what the ones before it left over: the user's map; the same name; the same name without wrappers;
the same type and shape in the same order (`likeness.py`); the same values. What is left then has no counterpart,
and that is told.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from hookline.diffs.entries import Entry
from hookline.diffs.likeness import by_order, by_values
from hookline.diffs.naming import places
from hookline.diffs.shifts import moved
from hookline.errors import InvalidArgument

if TYPE_CHECKING:
    from hookline.diffs.mapping import Map

SAME, UNWRAPPED, MAPPED, ORDER, VALUES = "same name", "without wrappers", "map", "type, shape and order", "values"
"""How two places were found to be the same."""


@dataclass(frozen=True)
class Alignment:
    """Which place of A is which place of B.

    `pairs` are names of A and of B, in A's order of execution; `how` says for each name of A by what they were
    found. `missing` are places that only A has, `extra` those that only B has. `reordered` are the fewest pairs
    without which both sides run in the same order. `wrappers` are places of either side that are a wrapper around,
    or what lies within a wrapper at, a place that is paired already: (side, name), with side "a" or "b".
    """

    pairs: list[tuple[str, str]]
    how: dict[str, str]
    missing: list[str]
    extra: list[str]
    reordered: list[tuple[str, str]]
    wrappers: list[tuple[str, str]] = field(default_factory=list)


def align(a: Sequence[Entry], b: Sequence[Entry], mapping: Map | None = None, *, exact: bool = False) -> Alignment:
    """Which place of A is which place of B; each is used at most once. `exact`: shapes have their axes in order.

    >>> a = [Entry("fc1", "Linear", 0, shapes=((2, 8),)), Entry("fc2", "Linear", 1, shapes=((2, 3),))]
    >>> b = [Entry("module.fc1", "Linear", 0, shapes=((2, 8),)), Entry("module.out", "Dense", 1, shapes=((2, 3),))]
    >>> align(a, b).how
    {'fc1': 'without wrappers', 'fc2': 'type, shape and order'}
    """
    pairing = Pairing(in_order(a), in_order(b))
    if mapping is not None:
        _by_map(pairing, mapping)
    _by_name(pairing)
    for one, other in by_order(pairing.left_a, pairing.left_b, pairing.to_b, exact):
        pairing.add(one.name, other.name, ORDER)
    for one, other in by_values(pairing.left_a, pairing.left_b, pairing.to_b):
        pairing.add(one.name, other.name, VALUES)
    return pairing.alignment()


def in_order(entries: Sequence[Entry]) -> list[Entry]:
    """Entries in the order of execution; a name that comes twice is refused."""
    twice = [name for name, count in Counter(entry.name for entry in entries).items() if count > 1]
    if twice:
        raise InvalidArgument(f"expected each name once on a side, got {twice[0]!r} more than once.")
    return sorted(entries, key=lambda entry: entry.order)


class Pairing:
    """Two sides while their places are being paired."""

    def __init__(self, a: list[Entry], b: list[Entry]) -> None:
        self.a = {entry.name: entry for entry in a}
        self.b = {entry.name: entry for entry in b}
        self.to_b: dict[str, str] = {}
        self.to_a: dict[str, str] = {}
        self.how: dict[str, str] = {}
        self.wrappers: list[tuple[str, str]] = []
        self.alone: set[str] = set()
        """Names of A that have no counterpart, as the user says."""

    @property
    def left_a(self) -> list[Entry]:
        """What of A has no partner yet, in order."""
        out = {name for side, name in self.wrappers if side == "a"} | self.alone
        return [entry for name, entry in self.a.items() if name not in self.to_b and name not in out]

    @property
    def left_b(self) -> list[Entry]:
        """What of B has no partner yet, in order."""
        out = {name for side, name in self.wrappers if side == "b"}
        return [entry for name, entry in self.b.items() if name not in self.to_a and name not in out]

    def add(self, one: str, other: str, how: str) -> bool:
        """Pairs two places, unless one of them is missing or has a partner; whether it did."""
        if one in self.to_b or other in self.to_a or one not in self.a or other not in self.b or one in self.alone:
            return False
        self.to_b[one], self.to_a[other], self.how[one] = other, one, how
        return True

    def alignment(self) -> Alignment:
        """What was found."""
        pairs = [(name, self.to_b[name]) for name in self.a if name in self.to_b]
        rank = {name: at for at, name in enumerate(self.b)}
        left = {entry.name for entry in self.left_a} | self.alone
        kept = longest_rise([rank[other] for _, other in pairs])
        return Alignment(
            pairs=pairs,
            how={name: self.how[name] for name, _ in pairs},
            missing=[name for name in self.a if name in left],
            extra=[entry.name for entry in self.left_b],
            reordered=[pair for at, pair in enumerate(pairs) if at not in kept],
            wrappers=self.wrappers,
        )


def longest_rise(numbers: Sequence[int]) -> set[int]:
    """The positions of a longest subsequence that rises; of several, one.

    >>> sorted(longest_rise([0, 3, 1, 2]))
    [0, 2, 3]
    """
    ends: list[int] = []  # the smallest last number of a rise of each length
    last: list[int] = []
    before: list[int] = []
    for at, number in enumerate(numbers):
        length = bisect_left(ends, number)
        before.append(last[length - 1] if length else -1)
        ends[length : length + 1] = [number]
        last[length : length + 1] = [at]
    found, at = set[int](), last[-1] if last else -1
    while at >= 0:
        found.add(at)
        at = before[at]
    return found


def _by_map(pairing: Pairing, mapping: Map) -> None:
    """What the map names, and what it says to have no counterpart."""
    pairing.alone = mapping.alone(list(pairing.a))
    for one, other in mapping.names(list(pairing.a), list(pairing.b)).items():
        pairing.add(one, other, MAPPED)


def _by_name(pairing: Pairing) -> None:
    """The same name, then the same name without wrappers; wrappers of a place that is paired count as found.

    Numbers of layers are those of B, where a layer was put into a list or taken out of it.
    """
    plain, theirs = places(pairing.a, pairing.b)
    ours = moved(plain, theirs, pairing.a, pairing.b)
    for name in pairing.a:
        if name in pairing.b and ours[name] == theirs[name]:
            pairing.add(name, name, SAME)
    inner: dict[str, list[str]] = {}
    for entry in pairing.left_b:
        inner.setdefault(theirs[entry.name], []).append(entry.name)
    for group in inner.values():
        group.sort(key=len)
    for name in sorted((entry.name for entry in pairing.left_a), key=len, reverse=True):
        if group := inner.get(ours[name], []):
            pairing.add(name, group.pop(), UNWRAPPED if ours[name] == plain[name] else ORDER)
    taken = {ours[name] for name in pairing.to_b}, {theirs[name] for name in pairing.to_a}
    pairing.wrappers += [("a", one.name) for one in pairing.left_a if ours[one.name] in taken[0]]
    pairing.wrappers += [("b", one.name) for one in pairing.left_b if theirs[one.name] in taken[1]]
