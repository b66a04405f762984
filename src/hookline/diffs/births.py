"""Births: of the calls that got the reference's values, those that made something else of them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from hookline.diffs.measures import coarser
from hookline.diffs.reading import Key, Side
from hookline.diffs.tolerance import Tolerance, exceeded
from hookline.diffs.ways import Born, Isolated


@dataclass(frozen=True)
class Birth:
    """An error that a call adds: which call, by how much, and what rounding alone may add.

    `before` is the part at which it shows when the call's own code hands it other values; "" where it shows in
    the call's output.
    """

    site: str
    call: int
    error: float
    tolerance: float
    metric: str
    before: str = ""
    misfit: str = ""
    differs: bool = True
    extra: bool = False
    """Whether it is a call that the reference does not make."""
    line: str = ""
    """The line at which the call is made, or that of the part before which it shows."""

    @property
    def key(self) -> Key:
        """The output of the call whose code it is."""
        return Key(self.site, "output", self.call)


def births(way: Isolated, floor: Tolerance, step: str) -> Iterator[Birth]:
    """What each call adds, in the order of the run; `step` is the coarsest dtype that is meant."""
    for event in way.events:
        for birth in _births(event, way.reference, floor, step):
            yield _blamed(replace(birth, line=_line(birth, way)), event, way) if birth.differs else birth


def _blamed(birth: Birth, event: Born, way: Isolated) -> Birth:
    """The birth, where the caller hands over another number of tensors its own."""
    caller, unlike = event.visit.caller, way.unlike.get((birth.site, birth.call))
    if event.at is not None or caller is None or unlike is None or birth.extra:
        return birth
    site = way.names[caller.site]
    return replace(birth, site=site, call=caller.call, before=birth.site, misfit=unlike)


def _line(birth: Birth, way: Isolated) -> str:
    return way.lines.get((birth.before or birth.site, birth.call), "")


def _births(event: Born, reference: Side, floor: Tolerance, step: str) -> Iterator[Birth]:
    before = event.at.site if event.at is not None else ""
    visit = event.visit
    if event.extra:
        owner = visit.caller or visit
        yield Birth(owner.site, owner.call, float("inf"), 0.0, "max_rel", visit.site, event.misfit, extra=True)
        return
    if event.misfit:
        yield Birth(visit.site, visit.call, float("inf"), 0.0, "max_rel", before, event.misfit)
        return
    leaves = reference.leaves(event.key)
    for at, gap in event.apart.items():
        scale = reference.scale(event.key, at)
        dtype = coarser(reference.dtype(leaves[at]), step)
        bound = floor.bound(event.key, at, scale, dtype, int(reference.array(leaves[at]).size))
        differs, error, allowed, metric = exceeded(gap, bound, scale)
        yield Birth(visit.site, visit.call, error, allowed, metric, before, differs=differs)
