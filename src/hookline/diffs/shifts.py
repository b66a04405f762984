"""Shifts: layers of a list whose numbers are others, since one was put in or taken out before them.

In `Sequential(fc, act, fc)` and `Sequential(fc, dropout, act, fc)` the names "1" and "2" mean other layers. Where
the types of numbered layers agree better when they are moved, the same layer is taken for the same place.
"""

from __future__ import annotations

from collections.abc import Mapping

from hookline.diffs.entries import Entry
from hookline.diffs.likeness import by_order, like
from hookline.diffs.naming import parent

Places = dict[str, str]
"""The place that each name of a side stands for."""


def moved(ours: Places, theirs: Places, a: Mapping[str, Entry], b: Mapping[str, Entry]) -> Places:
    """A's places, in which numbered layers have the numbers that they have in B.

    A layer that B does not have gets a place that no name of B stands for.
    """
    lists = _lists(theirs, b)
    for depth in sorted({_depth(above) for above in lists}):  # from the top: what is moved takes its parts along
        moves = {
            above: found
            for above, layers in _lists(ours, a).items()
            if _depth(above) == depth and above in lists and (found := _moves(layers, lists[above])) is not None
        }
        if moves:
            ours = {name: _renumbered(place, depth, moves) for name, place in ours.items()}
    return ours


def _lists(places: Places, entries: Mapping[str, Entry]) -> dict[str, dict[int, Entry]]:
    """By the place that holds them: layers by their numbers; within wrappers, the innermost."""
    found: dict[str, dict[int, Entry]] = {}
    for name in sorted(places, key=len):
        above, own = parent(places[name]), places[name].rpartition(".")[2]
        if above is not None and own.isdigit():
            found.setdefault(above, {})[int(own)] = entries[name]
    return found


def _depth(place: str) -> int:
    return place.count(".") + bool(place)


def _moves(a: dict[int, Entry], b: dict[int, Entry]) -> dict[int, int] | None:
    """B's number for each of A's, None where they are best left as they are."""
    same = sum(number in b and like(one.type, b[number].type) == 2 for number, one in a.items())
    if same == min(len(a), len(b)):
        return None
    ones, others = ([_by_type(number, side[number]) for number in sorted(side)] for side in (a, b))
    found = {int(one.name): int(other.name) for one, other in by_order(ones, others, {})}
    return found if len(found) > same else None


def _by_type(number: int, entry: Entry) -> Entry:
    return Entry(str(number), entry.type, number, entry.calls, numbers=entry.numbers)


def _renumbered(place: str, depth: int, moves: Mapping[str, Mapping[int, int]]) -> str:
    """A place, with another number for the part that lies so deep, if its list was moved."""
    parts = place.split(".")
    numbers = moves.get(".".join(parts[:depth]))
    if numbers is None or len(parts) <= depth or not parts[depth].isdigit():
        return place
    own = numbers.get(int(parts[depth]))
    return ".".join([*parts[:depth], f"{parts[depth]} of A" if own is None else str(own), *parts[depth + 1 :]])
