"""Run comparing: all series that two runs have in common, measured and judged."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hookline.diffs.measures import step_of
from hookline.diffs.run_histograms import share_of_noise
from hookline.diffs.run_measuring import (
    GROWTH,
    OF_BACKWARD,
    OF_FORWARD,
    OF_WEIGHTS,
    SINGLE,
    Apart,
    Judged,
    apart,
    judge,
    rms,
    step_seen,
)
from hookline.diffs.run_reading import Key, Numbers, StoredRun
from hookline.diffs.tolerance import Given, given_at
from hookline.rows import OF_PARAMETERS, SCALAR

Array = NDArray[Any]
Owner = tuple[str, int]
"""A module or a parameter, and a rank."""

ROWS = 200_000
"""About so many rows of each run are in memory at a time."""
WHEN = {
    **dict.fromkeys(("input", "output"), 0),
    "loss": 1,
    **dict.fromkeys(("grad_output", "grad_input", "grad"), 2),
    "param_grad": 3,
    "grad_norm": 4,
    **dict.fromkeys(("update", "moment", "moment_sq"), 5),
    "param": 6,
}
"""When in a step each kind, and each number of the training, is computed. The weights of a step are those before
it: they come last, since what is wrong with them shows in the step before, or in the outputs."""
NUMBERS = ("loss", "grad_norm")
"""The numbers of a training that count as a place."""


class Compared(NamedTuple):
    """A series that both runs have: what it is in each, how far it is apart, and at which steps it differs."""

    a: Key
    b: Key
    apart: Apart
    judged: Judged


def when(key: Key) -> int:
    """When in a step a series is computed."""
    return WHEN.get(key.site if key.kind == SCALAR else key.kind, len(WHEN))


def compare(
    a: StoredRun,
    b: StoredRun,
    pairs: Sequence[tuple[Key, Key]],
    tolerances: tuple[Given, Given],
    tell: Callable[[float], None] = lambda share: None,
) -> list[Compared]:
    """All pairs of series that have a step in common, in the order in which they are computed in a step.

    `tell` is told the share that is done, with every series.
    """
    numbered = sorted(enumerate([*pairs, *_numbers(a, b)]), key=lambda one: (when(one[1][0]), one[0]))
    ordered = [pair for _, pair in numbered]
    kinds = dict.fromkeys(when(key) for key, _ in ordered)
    comparing = _Comparing(a, b, tolerances, lambda halves: tell(halves / 2 / len(ordered)))
    for kind in sorted(kinds, key=lambda one: one - 2 * (one == WHEN["param"])):  # updates are relative to weights
        mine = {key: other for key, other in ordered if when(key) == kind}
        for some in a.chunks(list(mine), ROWS):
            comparing.take({key: mine[key] for key in some})
    return comparing.compared([key for key, _ in ordered])


def _numbers(a: StoredRun, b: StoredRun) -> list[tuple[Key, Key]]:
    """The loss and its like, as series of the lowest rank that both have."""
    ranks = sorted(set(a.ranks) & set(b.ranks))
    keys = [Key(name, SCALAR, 0, "train", ranks[0]) for name in NUMBERS if ranks]
    return [(key, key) for key in keys if a.has(key) and b.has(key)]


class _Comparing:
    """What was measured so far. Kinds come in the order in which they are computed."""

    def __init__(
        self, a: StoredRun, b: StoredRun, tolerances: tuple[Given, Given], tell: Callable[[int], None]
    ) -> None:
        self._a, self._b, self._tolerances, self._tell = a, b, tolerances, tell
        self._found: dict[Key, tuple[Key, Apart, Array | None]] = {}
        self._incoming: dict[Owner, dict[int, float]] = {}
        self._of_gradients: dict[Owner, tuple[Array, Array]] = {}
        self._weights: dict[Owner, tuple[Array, Array]] = {}
        self._outputs: dict[Key, tuple[Array, Array]] = {}
        self._drifts: dict[Owner, list[tuple[Array, Array]]] = {}
        self._has_bits = False
        self._halves = 0

    def take(self, pairs: dict[Key, Key]) -> None:
        """Measures some series; histograms are read only where anything is apart, and bits don't tell."""
        unsure = [key for key, one, other in self._read(pairs) if self._measure(key, pairs[key], one, other)]
        self._note_done(len(pairs) - len(unsure))
        for key, one, other in self._read({key: pairs[key] for key in unsure}, hists=True):
            self._measure(key, pairs[key], one, other, hists=True)

    def compared(self, keys: Sequence[Key]) -> list[Compared]:
        """What was found, in this order."""
        found = {key: self._found[key] for key in keys if key in self._found}
        rows = [(_part_of(key), one, self._more(key, one, more)) for key, (_, one, more) in found.items()]
        judged = judge(rows, grows=all(one is None for one in self._tolerances))
        return [
            Compared(key, other, one, verdict)
            for (key, (other, one, _)), verdict in zip(found.items(), judged, strict=True)
        ]

    def _note_done(self, halves: int) -> None:
        """A series is done in two halves: its statistics, and its histograms where these are read."""
        self._halves += halves
        self._tell(self._halves)

    def _more(self, key: Key, one: Apart, more: Array | None) -> Array | None:
        """What is allowed besides; at an output also what weights did to it whose gradients are noise."""
        if key.kind != "output" or not len(one):
            return more
        drifts = self._drifts.get((key.site, key.rank), ())
        moved = np.sum([_latest(*drift, one.steps - 1) for drift in drifts], axis=0) if drifts else np.zeros(1)
        return more if not moved.any() else moved / np.maximum(_latest(*self._outputs[key], one.steps), 1e-300)

    def _read(self, pairs: dict[Key, Key], *, hists: bool = False) -> Iterable[tuple[Key, Numbers, Numbers]]:
        """The numbers of both at the steps that both have."""
        ours, theirs = self._a.numbers(pairs, hists=hists), self._b.numbers(pairs.values(), hists=hists)
        for key, other in pairs.items():
            if key in ours and other in theirs:
                one, two = ours[key], theirs[other]
                if np.array_equal(one.steps, two.steps):
                    yield key, one, two
                    continue
                steps, mine, others = np.intersect1d(one.steps, two.steps, assume_unique=True, return_indices=True)
                if len(steps):
                    yield key, one.at(mine), two.at(others)

    def _measure(self, key: Key, other: Key, one: Numbers, two: Numbers, *, hists: bool = False) -> bool:
        """Notes how far a series is apart; whether histograms may tell more."""
        step = max(step_seen(one), step_seen(two), self._step_of_dtype(key, other))
        given, floor, more = self._given(key.site), self._floor(key, one), None
        measured = apart(one, two, step, floor=floor, given=given, hists=hists, kind=key.kind)
        if given is None:
            self._has_bits |= bool((one.printed & two.printed).all())
            if key.kind == SCALAR and self._has_bits:
                measured = measured.exact()
        owner = (key.site, key.rank)
        if key.kind == "param_grad":
            self._note_cancelled(owner, measured, apart(one, two, step, kind=key.kind), one, step)
        elif key.kind in OF_PARAMETERS and given is None:
            more = self._allowed(key, owner, one, measured.steps, step)
        elif key.kind == "grad_output" and not hists:
            self._note_incoming(key, one)
        elif key.kind == "output":
            self._outputs[key] = one.steps, rms(one)
        self._found[key] = other, measured, more
        self._note_done(1)
        return len(measured) > 0 and not bool(measured.by_bits.all()) and key.kind != SCALAR

    def _step_of_dtype(self, key: Key, other: Key) -> float:
        """The step at 1 of the dtype that a parameter is known to have; 0 where that is not known."""
        if key.kind == SCALAR:
            return SINGLE
        if key.kind not in OF_PARAMETERS:
            return 0.0
        names = (self._a, key.site), (self._b, other.site)
        known = [run.wiring.params[name].dtype for run, name in names if name in run.wiring.params]
        return max(map(step_of, known), default=0.0)

    def _given(self, site: str) -> tuple[float, float] | None:
        rtol, atol = (given_at(one, site) for one in self._tolerances)
        return None if rtol is None and atol is None else (rtol or 0.0, atol or 0.0)

    def _allowed(self, key: Key, owner: Owner, numbers: Numbers, steps: Array, step: float) -> Array | None:
        """What is allowed of a parameter and its update besides: what came of gradients that cancelled out, and
        of an update the rounding of the weight that it was added to."""
        is_weight = key.kind == "param"  # those of a step are before it
        came = self._of_gradients.get(owner)
        found = None if came is None else _latest(*came, steps - is_weight)
        if is_weight:
            self._weights[owner] = numbers.steps, numbers.column("absmax")
        elif key.kind == "update" and owner in self._weights:
            sizes = rms(numbers)[np.searchsorted(numbers.steps, steps)]
            if came is not None:
                self._note_drift(key, numbers)
            rounded = 2 * step * _latest(*self._weights[owner], steps) / np.maximum(sizes, 1e-300)
            found = rounded if found is None else np.maximum(found, rounded)
        return found

    def _note_drift(self, key: Key, numbers: Numbers) -> None:
        """Notes how far a weight whose gradient is noise can have moved, either way, by each step."""
        steps = numbers.steps
        each = (
            2 * np.nan_to_num(numbers.column("absmax"), nan=0.0, posinf=0.0) * np.diff(steps, prepend=steps[0] - 1)
        )
        module = self._a.module_of(key.site, key.kind)
        self._drifts.setdefault((module, key.rank), []).append((steps, np.cumsum(each)))

    def _note_cancelled(self, owner: Owner, measured: Apart, own: Apart, numbers: Numbers, step: float) -> None:
        """Notes how far a gradient is apart relative to itself, where all or some of it is nothing but rounding.

        An optimizer that divides by the size of a gradient makes steps of that.
        """
        if len(own) == len(measured) and len(own):
            units = np.where(~own.by_bits & (own.unit > GROWTH * measured.unit), GROWTH * own.unit, 0.0)
            noise = share_of_noise(numbers, step)[np.searchsorted(numbers.steps, own.steps)]
            units = np.maximum(units, GROWTH * np.sqrt(noise))
            if units.any():
                self._of_gradients[owner] = own.steps, np.maximum.accumulate(units)

    def _note_incoming(self, key: Key, numbers: Numbers) -> None:
        """Adds up the norms of the gradients that come to a module, at each step."""
        mine = self._incoming.setdefault((key.site, key.rank), {})
        for step, norm in zip(numbers.steps.tolist(), numbers.column("l2").tolist(), strict=True):
            if norm == norm:
                mine[step] = mine.get(step, 0.0) + norm * norm

    def _floor(self, key: Key, numbers: Numbers) -> Array | None:
        """What a parameter's gradient is at least relative to: the size of a sum of what comes to its module.

        Where these cancel out, as in front of a normalisation, nothing but rounding is left.
        """
        came = self._incoming.get((self._a.module_of(key.site, key.kind), key.rank))
        if key.kind != "param_grad" or came is None:
            return None
        norms = np.sqrt([came.get(step, 0.0) for step in numbers.steps.tolist()])
        found: Array = norms / np.sqrt(np.maximum(numbers.column("count"), 1.0))
        return found


def _part_of(key: Key) -> int:
    """Of which part of a step a series is."""
    if when(key) < WHEN["loss"]:
        return OF_FORWARD
    return OF_BACKWARD if when(key) < WHEN["update"] else OF_WEIGHTS


def _latest(steps: Array, values: Array, at: Array) -> Array:
    """The value of the last step until each of `at`; 0 before the first."""
    places = np.searchsorted(steps, at, side="right") - 1
    found: Array = np.where(places >= 0, values[np.maximum(places, 0)] if len(values) else 0.0, 0.0)
    return found
