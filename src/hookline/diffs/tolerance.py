"""Tolerance: by how much two numbers may differ and still be the same.

By default it is measured: `Noise` has what rounding alone does at each place, from runs of the reference with its
values moved by one step of the dtype. Where nothing was measured, it is taken from the dtype. A user's `rtol` and
`atol` come before both.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from hookline.diffs.measures import Apart, Scale, over, step_of
from hookline.diffs.reading import Key
from hookline.errors import InvalidArgument
from hookline.globs import matcher

MARGIN = 10.0
"""So many times the measured noise is still noise: another order of summing rounds in other places."""
STEPS = 4.0
"""So many steps of the dtype, relative to the largest number, are rounding wherever they are."""
UNMEASURED = 64.0
"""The same where nothing was measured: two recordings from files."""

Given = float | Mapping[str, float] | None


class Bound(NamedTuple):
    """What is allowed at a place: of the largest difference and of the norm of all."""

    largest: float
    norm: float


@dataclass
class Noise:
    """What rounding does to each tensor of each place, as far as it was measured."""

    found: dict[tuple[Key, int], Apart] = field(default_factory=dict)

    def note(self, key: Key, at: int, apart: Apart) -> None:
        """Adds a measurement; the largest counts."""
        old = self.found.get((key, at), Apart())
        largest, norm = max(old.largest, apart.largest), max(old.norm, apart.norm)
        self.found[key, at] = Apart(largest, norm, max(old.odd, apart.odd))

    def __call__(self, key: Key, at: int) -> Apart | None:
        """What was measured there; None where nothing was."""
        return self.found.get((key, at)) if self.found else None


@dataclass(frozen=True)
class Tolerance:
    """What is allowed at a place, in the unit of its numbers; `measured`: there was a run to find out."""

    noise: Noise = field(default_factory=Noise)
    rtol: Given = None
    atol: Given = None
    measured: bool = False

    def bound(self, key: Key, at: int, scale: Scale, dtype: str, count: int) -> Bound:
        """How far two tensors may be apart there."""
        rtol, atol = given_at(self.rtol, key.site), given_at(self.atol, key.site)
        if rtol is not None or atol is not None:
            most = (rtol or 0.0) * scale.largest + (atol or 0.0)
            return Bound(most, max((rtol or 0.0) * scale.norm, (atol or 0.0) * math.sqrt(count)))
        noise = self.noise(key, at) or Apart()
        steps = step_of(dtype) * (STEPS if self.measured else UNMEASURED)
        return Bound(
            max(MARGIN * noise.largest, steps * scale.largest), max(MARGIN * noise.norm, steps * scale.norm)
        )


def exceeded(apart: Apart, bound: Bound, scale: Scale) -> tuple[bool, float, float, str]:
    """Whether two tensors are further apart than allowed, and (error, tolerance, metric) to tell of it.

    One number that is wrong shows in the largest difference, an error of all of them in the norm.
    """
    if apart.odd:
        return True, math.inf, over(bound.largest, scale.largest), "max_rel"
    by_norm = apart.norm > bound.norm and apart.largest <= bound.largest
    if by_norm:
        return True, over(apart.norm, scale.norm), over(bound.norm, scale.norm), "l2_rel"
    error, allowed = over(apart.largest, scale.largest), over(bound.largest, scale.largest)
    return apart.largest > bound.largest, error, allowed, "max_rel"


def checked_tolerance(name: str, given: Any) -> Given:
    """A user's tolerance; InvalidArgument where it is no number above 0 or dict of {glob: number}."""
    numbers = list(given.values()) if isinstance(given, Mapping) else [given]
    if given is None:
        return None
    if not numbers or not all(isinstance(one, (int, float)) and 0 <= one < math.inf for one in numbers):
        raise InvalidArgument(f'{name}={given!r}: expected a number such as 1e-3, or {{"encoder.**": 1e-3}}.')
    checked: Given = dict(given) if isinstance(given, Mapping) else float(given)
    return checked


def given_at(given: Given, site: str) -> float | None:
    """What a user's tolerance is at a site; None where it says nothing of it."""
    if given is None or isinstance(given, float):
        return given
    return next((float(number) for glob, number in given.items() if matcher(glob)(site)), None)
