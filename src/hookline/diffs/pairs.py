"""Pairs: two recordings compared, place by place, along an alignment."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from numpy.typing import NDArray

from hookline.diffs import found
from hookline.diffs.aligning import Alignment
from hookline.diffs.found import Arrays, Measure, SiteDiff
from hookline.diffs.mapping import Map
from hookline.diffs.measures import Apart, apart, coarser, measure
from hookline.diffs.own_names import in_layout_of, same_weights
from hookline.diffs.reading import BACKWARD, FORWARD, PARAM_GRAD, Key, Leaf, Side, matched
from hookline.diffs.tolerance import Noise, Tolerance, exceeded

AS_FAR = 10.0
"""So many times as far from A as A is from itself is still chance."""


@dataclass
class Pair:
    """Two sides and how they are aligned."""

    a: Side
    b: Side
    alignment: Alignment
    map: Map | None = None
    others: dict[str, str] = field(init=False)
    """B's name of each site of A that has one."""
    _gaps: dict[Any, Apart] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.others = dict(self.alignment.pairs)

    def places(self) -> Iterator[tuple[Key, Key]]:
        """The places that both have, A's and B's, in the order of A's forward, then of its backward."""
        kinds = [kind for kind in self.a.kinds if kind in self.b.kinds]
        calls = self.calls()
        for site, call in calls:
            yield from self._keys(site, call, [kind for kind in kinds if kind not in BACKWARD])
        if not set(kinds) & {*BACKWARD}:
            return
        for site, call in reversed(calls):
            yield from self._keys(site, call, [kind for kind in kinds if kind in BACKWARD])
            if call == len(self.a.calls(site)) - 1:
                yield from self._param_grads(site)

    def calls(self) -> list[tuple[str, int]]:
        """(site, number) of the calls that both have, in the order in which A's ended."""
        found: list[tuple[int, str, int]] = []
        for site, other in self.alignment.pairs:
            calls = self.a.calls(site)
            both = min(len(calls), len(self.b.calls(other)))
            found += [(calls[number].ended, site, number) for number in range(both)]
        return [(site, number) for _, site, number in sorted(found)]

    def arrays(self, place: SiteDiff) -> Arrays | None:
        """The two arrays of a place, B's in A's layout; None where they can't be told apart any more."""
        key = Key(place.site, place.kind, place.call)
        other = Key(place.other, place.kind, place.call)
        ones, twos = self.a.leaves(key), self.b.leaves(other)
        for at, there in matched(ones, twos):
            if ones[at].path == place.part:
                return self.a.array(ones[at]), self.in_layout_of_a(key, self.b.array(twos[there]))
        return None

    def in_layout_of_a(self, key: Key, array: NDArray[Any]) -> NDArray[Any]:
        """B's array as A would have it."""
        if key.kind == PARAM_GRAD:
            return self._weight_of_a(key, array)
        return array if self.map is None else self.map.to_a(key.site, key.kind, array)

    def gap(self, place: tuple[Key, int], tensors: tuple[Any, Any], arrays: Arrays) -> Apart:
        """How far the arrays of a place are apart; two tensors are looked at once, also if they are at several."""
        asked: Any = place
        one_meaning = self.map is None and place[0].kind in FORWARD  # B's tensor stands for the same everywhere
        if one_meaning and self.a.in_memory and self.b.in_memory:
            asked = tuple(map(id, tensors))
        known = self._gaps.get(asked)
        if known is None:
            known = self._gaps[asked] = apart(*arrays)
        return known

    def _keys(self, site: str, call: int, kinds: list[str]) -> Iterator[tuple[Key, Key]]:
        for kind in kinds:
            yield Key(site, kind, call), Key(self.others[site], kind, call)

    def _param_grads(self, site: str) -> Iterator[tuple[Key, Key]]:
        other = self.others[site]
        for name, its in same_weights(self.a.param_grads(site), self.b.param_grads(other), self._said(site)):
            yield Key(join(site, name), PARAM_GRAD), Key(join(other, its), PARAM_GRAD)

    def _said(self, site: str) -> dict[str, str]:
        """B's name for each of a module's own weights that the map names."""
        if self.map is None:
            return {}
        theirs = {join(self.others[site], its): its for its in self.b.param_grads(self.others[site])}
        said = {name: self.map.other(join(site, name)) for name in self.a.param_grads(site)}
        return {name: theirs[its] for name, its in said.items() if its in theirs}

    def _weight_of_a(self, key: Key, array: NDArray[Any]) -> NDArray[Any]:
        """B's array of a weight as A would have it: as the map says of it, or as the types of modules tell."""
        site, _, name = key.site.rpartition(".")
        said = self._said(site)
        if self.map is not None and name in said and self.map.layout(key.site) is not None:
            return self.map.to_a(key.site, key.kind, array)
        other = self.others[site]
        its = dict(same_weights(self.a.param_grads(site), self.b.param_grads(other), said)).get(name, name)
        return in_layout_of((name, self.a.types.get(site, "")), (its, self.b.types.get(other, "")), array)


def join(site: str, name: str) -> str:
    """The dotted name of a parameter of a module."""
    return f"{site}.{name}" if site else name


def compare(
    pair: Pair,
    tolerance: Tolerance | None,
    random: Noise | None = None,
    tell: Callable[[float], None] = lambda share: None,
) -> list[SiteDiff]:
    """Every place that both sides have, in order; `random` is how far A is from itself.

    Without a tolerance it is only told which places are equal to the bit; all others are different. `tell` is told
    the share that is done.
    """
    places = list(pair.places())
    compared = []
    for order, (key, other) in enumerate(places):
        compared.append(_compared(pair, key, other, tolerance, random or Noise(), order))
        tell(len(compared) / len(places))
    return compared


def noise_of(pair: Pair) -> Noise:
    """How far two runs of one model are apart, place by place."""
    noise = Noise()
    for key, other in pair.places():
        ones, twos = pair.a.leaves(key), pair.b.leaves(other)
        for at, there in matched(ones, twos):
            if tuple(ones[at].tensor.shape) == tuple(twos[there].tensor.shape):
                noise.note(key, at, apart(pair.a.array(ones[at]), pair.b.array(twos[there])))
    return noise


def _compared(
    pair: Pair, key: Key, other: Key, tolerance: Tolerance | None, random: Noise, order: int
) -> SiteDiff:
    ones, twos = pair.a.leaves(key), pair.b.leaves(other)
    facts: dict[str, Any] = {
        "other": other.site,
        "type": pair.a.types.get(key.site, ""),
        "order": order,
        "call": key.call,
        "kind": key.kind,
    }
    worst: tuple[float, SiteDiff] | None = None
    for at, there in matched(ones, twos):
        place = _part(pair, key, at, ones[at], twos[there], tolerance, random, facts)
        weight = _weight(place)
        if worst is None or weight > worst[0]:
            worst = weight, place
    place = SiteDiff(key.site, **facts) if worst is None else worst[1]
    if len(ones) == len(twos) or place.why:
        return place
    if key.kind in FORWARD:
        return replace(place, why=f"A has {len(ones)} tensors here, B has {len(twos)}")
    lacking = (
        "A has a gradient here that B has not" if len(ones) > len(twos) else "B has a gradient that A has not"
    )
    return replace(place, verdict=found.DIFFERENT, error=float("inf"), tolerance=0.0, why=lacking)


def _weight(place: SiteDiff) -> float:
    """By how much a part counts among those of its place."""
    if place.verdict == found.SHAPE:
        return float("inf")
    rank = {found.DIFFERENT: 3.0, found.RANDOM: 2.0, found.WITHIN: 1.0}.get(place.verdict, 0.0)
    over = place.error / place.tolerance if place.tolerance else place.error
    return rank * 1e30 + min(over, 1e29)


def _part(
    pair: Pair,
    key: Key,
    at: int,
    one: Leaf,
    two: Leaf,
    tolerance: Tolerance | None,
    random: Noise,
    facts: dict[str, Any],
) -> SiteDiff:
    a, b = pair.a.array(one), pair.in_layout_of_a(key, pair.b.array(two))
    dtypes = pair.a.dtype(one), pair.b.dtype(two)
    facts = {**facts, "part": one.path, "shape": tuple(int(n) for n in a.shape), "dtypes": dtypes}
    if a.shape != b.shape:
        why = f"its shape is {tuple(a.shape)} in A and {tuple(b.shape)} in B"
        return SiteDiff(key.site, verdict=found.SHAPE, error=float("inf"), why=why, **facts)
    gap = pair.gap((key, at), (one.tensor, two.tensor), (a, b))
    if gap == Apart():
        return SiteDiff(key.site, measure=Measure(count=int(a.size)), **facts)
    if tolerance is None:
        return SiteDiff(key.site, verdict=found.DIFFERENT, error=gap.largest, **facts)
    scale = pair.a.scale(key, at)
    bound = tolerance.bound(key, at, scale, coarser(*dtypes), int(a.size))
    differs, error, allowed, metric = exceeded(gap, bound, scale)
    verdict = found.DIFFERENT if differs else found.WITHIN
    own = random(key, at)
    if differs and own is not None and _is_chance(gap, own):
        verdict = found.RANDOM
    numbers = measure(a, b, dtypes, bound.largest)
    return SiteDiff(
        key.site, verdict=verdict, error=error, tolerance=allowed, metric=metric, measure=numbers, **facts
    )


def _is_chance(gap: Apart, own: Apart) -> bool:
    """Whether B is about as far from A as A is from itself."""
    return (
        gap.largest <= AS_FAR * own.largest and bool(gap.odd) == bool(own.odd) and (own.largest > 0 or own.odd > 0)
    )
