"""Weight pairs: which weight of a file is which of a model: by map, by name, by what their modules are."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from hookline.diffs.aligning import align
from hookline.diffs.entries import Entry
from hookline.diffs.mapping import Map
from hookline.diffs.rules import Rule


@dataclass(frozen=True)
class Weight:
    """A weight as the pairing needs it: its shape, and the type of its module where that is known."""

    shape: tuple[int, ...]
    type: str = ""


Weights = Mapping[str, Weight]
"""Weights by their neutral names."""


def weight_pairs(ours: Weights, theirs: Weights, given: Map | None, in_order: bool = True) -> dict[str, str]:
    """The model's name for each name of the file that has one.

    Modules are paired as sites are, by map, name, and type, shapes and order; then by shapes that only one module
    of each side has. A file whose weights are in no order (`in_order` False) is not paired by order: modules of
    the same shapes would be exchanged, and nothing would tell.

    >>> ours = {"q.weight": Weight((8, 8)), "k.weight": Weight((8, 8)), "fc.weight": Weight((2, 8))}
    >>> weight_pairs(ours, {"out.weight": Weight((2, 8)), "a.weight": Weight((8, 8))}, None, in_order=False)
    {'fc.weight': 'out.weight'}
    """
    a, b = _modules(ours), _modules(theirs)
    found: dict[str, str] = {}
    rules: list[Rule] = []
    if given is not None:
        said = given.names([*ours, *a], [*theirs, *b])
        found = {one: other for one, other in said.items() if one in ours and other in theirs}
        rules = [Rule(one, other) for one, other in said.items() if one not in ours and other in b]
    alignment = align(
        _entries(a, ours, known=in_order), _entries(b, theirs), Map(rules) if rules else None, exact=True
    )
    pairs = alignment.pairs + _only_ones(
        {name: a[name] for name in alignment.missing}, ours, {name: b[name] for name in alignment.extra}, theirs
    )
    taken = set(found.values())
    for one, other in pairs:
        for name in a[one]:
            match = f"{other}.{_own(name)}".removeprefix(".")
            if name not in found and match in theirs and match not in taken:
                found[name] = match
                taken.add(match)
    return found


def _modules(names: Iterable[str]) -> dict[str, list[str]]:
    """The names of weights by that of their module, in order."""
    found: dict[str, list[str]] = {}
    for name in names:
        found.setdefault(name.rpartition(".")[0], []).append(name)
    return found


def _entries(modules: Mapping[str, list[str]], weights: Weights, known: bool = True) -> list[Entry]:
    """What is known of each module, for alignment; only its name where its place says nothing."""
    return [
        Entry(
            module,
            weights[names[0]].type if known else "",
            order,
            shapes=tuple(weights[name].shape for name in sorted(names, key=_own)) if known else (),
        )
        for order, (module, names) in enumerate(modules.items())
    ]


def _only_ones(
    a: Mapping[str, list[str]], ours: Weights, b: Mapping[str, list[str]], theirs: Weights
) -> list[tuple[str, str]]:
    """Modules with weights of the same names and shapes, where each side has one such module."""
    sides = []
    for modules, weights in ((a, ours), (b, theirs)):
        looks = {
            module: frozenset((_own(n), weights[n].shape) for n in names) for module, names in modules.items()
        }
        counts = Counter(looks.values())
        sides.append({look: module for module, look in looks.items() if counts[look] == 1})
    return [(one, sides[1][look]) for look, one in sides[0].items() if look in sides[1]]


def _own(name: str) -> str:
    return name.rpartition(".")[2]
