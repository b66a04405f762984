"""Listing: the places of a diff in one list, and which of them are drawn, written, or have pictures."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from hookline.diffs.found import DIFFERENT, EQUAL, RANDOM, SHAPE, WITHIN, SiteDiff
from hookline.diffs.reading import BACKWARD, PARAM_GRAD

if TYPE_CHECKING:
    from hookline.diffs.result import Diff

GRADIENTS = (*BACKWARD, PARAM_GRAD)
"""Kinds of values that the backward makes; all others are of the forward."""
MEASURED = (EQUAL, WITHIN, RANDOM, DIFFERENT, SHAPE)
"""Verdicts of places that both sides have."""
MIRRORS = {"input": "output", "grad_input": "grad_output"}
"""What goes into a module came out of another."""
BEFORE = 4
"""So many places before the first that differs have pictures too: what was still the same."""
CLOSEST = 12
"""Where nothing differs, so many places that come closest to it have pictures."""


def together(diff: Diff) -> list[SiteDiff]:
    """All places in one list, what is unmatched behind the others.

    More is known of the first that differs than of the same place among the others: it stands in its place.
    """
    places = list(diff.sites)
    numbers = {key_of(one): at for at, one in enumerate(places)}
    for one in diff.unmatched:
        if numbers.setdefault(key_of(one), len(places)) == len(places):
            places.append(one)
    if diff.first is not None:
        if (known := numbers.get(key_of(diff.first))) is not None:
            places[known] = diff.first
        else:
            when = diff.first.step, diff.first.order
            later = (at for at, one in enumerate(diff.sites) if (one.step, one.order) > when)
            places.insert(next(later, len(diff.sites)), diff.first)
    return places


def key_of(place: SiteDiff) -> tuple[Any, ...]:
    """What tells a place from all others; its numbers are not looked at.

    A verdict counts only where nothing is measured: a place may have another dtype, and an error besides.
    """
    verdict = "" if place.verdict in MEASURED else place.verdict
    return place.site, place.other, place.kind, place.call, place.step, place.part, verdict


def charted(places: list[SiteDiff], first: SiteDiff | None) -> list[int]:
    """Numbers of the places along the depth: what comes out of each module, and the gradients that come to it.

    What mirrors these is among them only where it is the first that differs, or nothing else was compared.
    """
    kinds = {one.kind for one in places if one.verdict in MEASURED}
    return [
        at
        for at, one in enumerate(places)
        if one.verdict in MEASURED and (one is first or MIRRORS.get(one.kind) not in kinds)
    ]


def worst(places: Iterable[SiteDiff]) -> SiteDiff:
    """The place whose error is the most above its tolerance; NaN is worse than any number."""
    return max(places, key=lambda place: (place.differs, share(place), *_size(place.error)))


def _size(error: float) -> tuple[bool, float]:
    """To be compared where nothing is tolerated, so that all shares are infinite."""
    return (False, error) if math.isfinite(error) else (True, 0.0)


def share(place: SiteDiff) -> float:
    """How many times its tolerance the error of a place is.

    >>> share(SiteDiff("fc", error=0.5, tolerance=0.25)), share(SiteDiff("fc")), share(SiteDiff("fc", error=1.0))
    (2.0, 0.0, inf)
    """
    if not place.error:
        return 0.0
    return place.error / place.tolerance if place.tolerance and math.isfinite(place.error) else math.inf


def kept(places: list[SiteDiff], first: SiteDiff | None, most: int) -> list[SiteDiff]:
    """What a report has, in order: all, or of too many the worst of each step and the first that differ."""
    if len(places) <= most:
        return places
    steps: dict[tuple[int, bool], list[SiteDiff]] = {}
    for one in places:
        steps.setdefault((one.step, one.kind in GRADIENTS), []).append(one)
    by_step = len({step for step, _ in steps}) > 1
    worsts = sorted((worst(some) for some in steps.values() if by_step), key=lambda one: not one.differs)
    wanted = {id(first), *(id(one) for one in worsts[: most - 1])}
    for one in [*(each for each in places if each.differs), *places]:
        if len(wanted) >= most:
            break
        wanted.add(id(one))
    return [one for one in places if id(one) in wanted]


def pictured(places: list[SiteDiff], first: int | None) -> list[int]:
    """Numbers of the places whose values are of interest, those first that somebody looks at first."""
    numbers = [at for at, one in enumerate(places) if one.verdict in MEASURED]
    differing = [at for at in numbers if places[at].differs]
    if first is None:
        near = sorted(numbers, key=lambda at: (places[at].kind in MIRRORS, -share(places[at])))[:CLOSEST]
        return list(dict.fromkeys([*differing, *near]))
    sources = set(places[first].sources)
    before = [at for at in numbers if at < first and (at >= first - BEFORE or places[at].site in sources)]
    forward = [at for at in differing if places[at].kind not in GRADIENTS]
    backward = [at for at in differing if places[at].kind in GRADIENTS]
    return list(dict.fromkeys([first, *reversed(before[-2 * BEFORE :]), *_in_turns(forward, backward)]))


def _in_turns(forward: list[int], backward: list[int]) -> Iterator[int]:
    """Two of the forward, one of the backward, and so on: neither takes all the room."""
    one, other = iter(forward), iter(backward)
    while some := [at for at in (next(one, None), next(one, None), next(other, None)) if at is not None]:
        yield from some
