"""Two stored runs, compared step by step: the first step, and in it the first site, at which they part."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

from hookline.diffs import found
from hookline.diffs.found import Measure, SiteDiff
from hookline.diffs.mapping import as_map
from hookline.diffs.result import Diff
from hookline.diffs.run_causes import NOT_COMPARED, PartedScalar, causes, parted
from hookline.diffs.run_comparing import Compared, compare
from hookline.diffs.run_measuring import NAMES, Apart
from hookline.diffs.run_pairing import paired
from hookline.diffs.run_reading import Key, StoredRun
from hookline.diffs.tolerance import Given, checked_tolerance
from hookline.errors import RunError
from hookline.rows import HISTOGRAM, SCALAR
from hookline.runs.run import Run

SHOWN = 5


def diff_runs(
    a: Run | str | Path,
    b: Run | str | Path,
    *,
    rtol: Given = None,
    atol: Given = None,
    map: Any = None,
    where: str | None = None,
    tell: Callable[[float], None] = lambda share: None,
) -> Diff:
    """Where two stored runs part: the first step, and in that step the first site in the order of the data.

    If both were watched with `fingerprint=True`, bits are compared; else statistics and histograms, and what is
    allowed is rounding of the dtype and what a training can make of it. `rtol` and `atol` (numbers, or
    {glob: number}) come before both: statistics are then compared with these. `map` tells which site of A is which
    of B, `where` which sites of A are looked at. `sites` has each series once: at the first step at which it
    differs, or where it is furthest apart. `tell` is told the share that is done; what it raises ends the work.
    """
    tolerances = checked_tolerance("rtol", rtol), checked_tolerance("atol", atol)
    with ExitStack() as opened:
        one = StoredRun(a)
        opened.callback(one.close)
        other = StoredRun(b)
        opened.callback(other.close)
        for run in (one, other):
            run.check()
        if not set(one.steps) & set(other.steps):
            raise RunError(f"the runs have no step in common: {_steps(one)}, {_steps(other)}.")
        pairs = paired(one, other, as_map(map), where)
        compared = compare(one, other, pairs.pairs, tolerances, tell)
        if not compared:
            raise RunError("the runs have no row in common: no site has a row of the same step in both.")
        scalars = parted(one.run.scalars(), other.run.scalars())
        diff = Diff(one.label, other.label, unmatched=pairs.unmatched)
        diff.sites = [_place(one, each, at) for at, each in enumerate(compared)]
        if differing := [place for place in diff.sites if place.differs]:
            diff.first = _with_birth(min(differing, key=lambda place: (place.step, place.order)), diff.sites)
            begin = min(set(one.steps) & set(other.steps))
            weights = [place for place in differing if place.kind == "param" and place.step == begin]
            diff.causes = causes(one, other, diff.first, scalars, weights, pairs.modes)
        diff.notes = [*_how(compared, tolerances), *pairs.notes, *_about_runs(one, other)]
        diff.notes += _left_over(len(pairs.pairs), compared, scalars)
        return diff


def _place(run: StoredRun, compared: Compared, order: int) -> SiteDiff:
    """A series as one place: where it first differs, or is furthest apart."""
    key, one, judged = compared.a, compared.apart, compared.judged
    facts: dict[str, Any] = {
        "kind": key.kind,
        "call": key.call,
        "other": compared.b.site,
        "type": run.types.get(run.module_of(key.site, key.kind), ""),
        "order": order,
        "part": ", ".join(_besides(run, key)),
    }
    if not len(one):
        is_sure = one.by_bits_compared == one.compared
        how: dict[str, Any] = {"metric": "bits"} if is_sure else {"metric": "stat", "verdict": found.WITHIN}
        return SiteDiff(key.site, step=one.last_step, tolerance=0.0 if is_sure else one.allowed, **how, **facts)
    over = one.unit if (judged.tolerance == 0).any() else one.error / judged.tolerance
    at = int(judged.differs.argmax()) if judged.differs.any() else int(over.argmax())
    stat, bits = NAMES[int(one.stat[at])], bool(one.by_bits[at])
    verdict = found.WITHIN
    if judged.differs[at]:
        verdict = found.SHAPE if stat == "count" else found.DIFFERENT
    gap = int(abs(one.a[at] - one.b[at])) if stat in ("nan", "inf") else 0
    return SiteDiff(
        key.site,
        step=int(one.steps[at]),
        verdict=verdict,
        error=float(one.error[at]),
        tolerance=float(judged.tolerance[at]),
        metric="bits" if bits else "stat",
        why=_why(one, at, stat, bits),
        measure=Measure(
            norm_ratio=float(one.ratio[at]),
            nan_mismatch=gap if stat == "nan" else 0,
            inf_mismatch=gap if stat == "inf" else 0,
            count=int(one.count[at]),
        ),
        **facts,
    )


def _besides(run: StoredRun, key: Key) -> Iterator[str]:
    if len(run.ranks) > 1 or key.rank:
        yield f"rank {key.rank}"
    if key.mode != "train" and "train" in run.modes:
        yield key.mode


def _why(one: Apart, at: int, stat: str, bits: bool) -> str:
    """What differs, in words."""
    if bits and not one.unit[at]:
        return "its bits are others, its statistics are the same"
    if stat == HISTOGRAM:
        return f"{one.error[at]:.2g} of its values are in other bins of the histogram"
    told = f"its {stat} is {one.a[at]:.9g} in A and {one.b[at]:.9g} in B"
    if stat in ("count", "nan", "inf", "zeros"):
        what = {"count": "values", "zeros": "zeros", "nan": "NaN", "inf": "Inf"}[stat]
        told = f"it has {int(one.a[at]):,} {what} in A and {int(one.b[at]):,} in B"
    return told


def _with_birth(first: SiteDiff, places: Sequence[SiteDiff]) -> SiteDiff:
    """The first place; born there, as far as it is known, if what came in is the same at that step."""
    if first.kind != "output":
        return first
    came = [one for one in places if (one.site, one.kind, one.call) == (first.site, "input", first.call)]
    if not came or not all(one.part == first.part for one in came):
        return first
    return replace(first, born=not any(one.differs and one.step <= first.step for one in came), estimated=True)


# Remarks


def _how(compared: Sequence[Compared], tolerances: tuple[Given, Given]) -> Iterator[str]:
    """What was compared, and what was allowed."""
    series = [one for one in compared if one.a.kind != SCALAR]
    steps = sum(one.apart.compared for one in series)
    many = f"{steps:,} rows of {len(series):,} series"
    if any(given is not None for given in tolerances):
        rtol, atol = tolerances
        yield f"statistics of {many} were compared, with rtol={rtol} and atol={atol}."
        return
    by_bits = sum(one.apart.by_bits_compared for one in series)
    if by_bits == steps:
        yield f"the bits of {many} were compared, by their fingerprints."
        return
    if by_bits:
        yield f"the bits of {by_bits:,} of {many} were compared, by their fingerprints."
    outputs = [one for one in series if one.a.kind == "output"] or series
    largest = max((one.apart.rounding for one in outputs), default=0.0)
    lacking = "no fingerprints of bits are there, which watch(fingerprint=True) keeps"
    yield f"statistics of {many} were compared: {lacking}." if not by_bits else "of the others, statistics tell."
    yield (
        f"allowed is rounding of the dtype, up to {largest:.1g} of the size of an average, at the first step at "
        "which anything differs, and from then on what a training can make of that within a step."
    )
    drifted = [one for one in outputs if len(one.apart) and not one.judged.differs.any()]
    if drifted:
        begin = min(int(one.apart.steps[0]) for one in drifted)
        error = max(float(one.apart.error.max()) for one in drifted)
        yield (
            f"{len(drifted):,} of {len(outputs):,} outputs are apart by no more than that: from step {begin:,} "
            f"on, and by {error:.1g} at most."
        )


def _about_runs(a: StoredRun, b: StoredRun) -> Iterator[str]:
    """What of the runs is not as it should be, or not the same."""
    for name, run in (("A", a), ("B", b)):
        if (state := run.state()) is not None:
            last = f"its last step is {run.steps[-1]:,}"
            yield f"{name} may be only a part of a run: {state}; {last}. What is there was compared."
        for told in run.run.damage[:SHOWN]:
            yield f"{name} is damaged: {told}"
    common = sorted(set(a.steps) & set(b.steps))
    if a.steps != b.steps:
        yield (
            f"{_steps(a, 'A')}, {_steps(b, 'B')}: the {len(common):,} that both have, from {common[0]:,} to "
            f"{common[-1]:,}, were compared."
        )
    for name in ("model", "hookline", "versions", "backend"):
        one, other = a.meta.get(name), b.meta.get(name)
        if one != other and name != "versions":
            yield f"{name}: {one} in A, {other} in B."
        elif one != other and isinstance(one, Mapping) and isinstance(other, Mapping):
            for package in sorted(one.keys() | other.keys()):
                if one.get(package) != other.get(package):
                    yield f"{package}: {one.get(package)} in A, {other.get(package)} in B."


def _left_over(pairs: int, compared: Sequence[Compared], scalars: Mapping[str, PartedScalar]) -> Iterator[str]:
    series = sum(one.a.kind != SCALAR for one in compared)
    if series < pairs:
        yield f"{pairs - series:,} series that both have share no step, or can't be read; they were not compared."
    logged = [one for name, one in sorted(scalars.items()) if name.partition("/")[0] not in NOT_COMPARED]
    for one in logged[:SHOWN]:
        yield f"{one.name} was logged, and is {one.a:.9g} in A and {one.b:.9g} in B at step {one.step:,}."


def _steps(run: StoredRun, name: str = "") -> str:
    first, last = run.steps[0], run.steps[-1]
    return f"{name or run.label} has {len(run.steps):,} steps from {first:,} to {last:,}"
