"""Stating: from compared places to what is said of them: what has no counterpart, what came from where, what is
first."""

from __future__ import annotations

from dataclasses import replace

from hookline.diffs import found
from hookline.diffs.found import SiteDiff
from hookline.diffs.pairs import Pair
from hookline.diffs.reading import FORWARD, PARAM_GRAD, Key
from hookline.diffs.result import Diff


def with_unmatched(diff: Diff, pair: Pair) -> Diff:
    """The diff with what only one side has, runs at another time, or is called another number of times.

    These alone make no difference where the outputs of the models are the same. Where these can't be compared,
    the first of them counts.
    """
    alignment, types, others = pair.alignment, pair.a.types, pair.b.types
    wrappers = {name for _, name in alignment.wrappers}
    for name in alignment.missing:
        if name not in wrappers:
            why = "only A calls it"
            diff.unmatched.append(SiteDiff(name, verdict=found.MISSING, type=types.get(name, ""), why=why))
    for name in alignment.extra:
        if name not in wrappers:
            why = "only B calls it"
            diff.unmatched.append(
                SiteDiff(name, other=name, verdict=found.EXTRA, type=others.get(name, ""), why=why)
            )
    for site, other in alignment.reordered:
        why = "it is called at another time, relative to the others"
        diff.unmatched.append(SiteDiff(site, other=other, verdict=found.REORDERED, why=why))
    for site, other in alignment.pairs:
        ours, theirs = len(pair.a.calls(site)), len(pair.b.calls(other))
        if ours != theirs:
            why = f"A calls it {_times(ours)}, B {_times(theirs)}"
            diff.unmatched.append(SiteDiff(site, other=other, verdict=found.CALLS, why=why))
    diff.unmatched += [
        SiteDiff(
            one.site,
            one.kind,
            one.call,
            verdict=found.DTYPE,
            other=one.other,
            dtypes=one.dtypes,
            why=f"it is {one.dtypes[0]} in A and {one.dtypes[1]} in B",
        )
        for one in diff.sites
        if one.kind == "output" and one.dtypes[0] != one.dtypes[1]
    ]
    diff.unmatched += [
        replace(one, verdict=found.SHAPE)
        for one in diff.sites
        if one.why.startswith("A has ") and one.verdict != found.SHAPE and one.kind in FORWARD
    ]
    ends = [one for one in diff.sites if one.site == "" and one.kind == "output"]
    telling = [one for one in diff.unmatched if one.verdict not in (found.DTYPE, found.SHAPE)]
    if not ends and telling:
        diff.first = telling[0]
    return diff


def first_place(sites: list[SiteDiff], pair: Pair) -> SiteDiff | None:
    """The first place that differs, without a run: in the forward, else in the backward."""
    if (place := estimated_first(sites)) is not None:
        return place
    if any(one.kind not in FORWARD and one.differs for one in sites):
        return first_of_gradients(sites, pair)
    return None


def estimated_first(sites: list[SiteDiff]) -> SiteDiff | None:
    """The first place of a forward that differs, without a run: born there if what came in is the same."""
    forward = [one for one in sites if one.kind in FORWARD and one.differs]
    if not forward:
        return None
    places = {Key(one.site, one.kind, one.call): one for one in sites}
    first = next((one for one in forward if one.kind == "output"), forward[0])
    came = places.get(Key(first.site, "input", first.call))
    if came is None:
        return replace(first, estimated=True)
    added = max(first.error - came.error, 0.0) if came.differs else first.error
    return replace(first, born=not came.differs, added=added, added_tolerance=first.tolerance, estimated=True)


def with_estimates(sites: list[SiteDiff]) -> list[SiteDiff]:
    """The outputs with what each seems to add: all of its error where what came in is the same."""
    places = {Key(one.site, one.kind, one.call): one for one in sites}
    result = []
    for one in sites:
        came = places.get(Key(one.site, "input", one.call)) if one.kind == "output" else None
        if came is not None and one.verdict != found.EQUAL:
            grown = one.error if not came.differs else max(one.error - came.error, 0.0)
            one = replace(one, added=grown, added_tolerance=one.tolerance, estimated=True)
            one = replace(one, born=one.differs and not came.differs)
        result.append(one)
    return result


def first_of_gradients(sites: list[SiteDiff], pair: Pair) -> SiteDiff:
    """The first gradient that differs, in the order of the backward.

    What a call gets is made by the code that used its output, which is its caller's; what it hands on is its own.
    """
    first = next(one for one in sites if one.kind not in FORWARD and one.differs)
    if first.kind == PARAM_GRAD:
        module = first.site.rpartition(".")[0]
        return replace(
            first,
            born=True,
            why=f"the gradient that came to {repr(module) if module else 'the model'} is the same",
        )
    if first.kind == "grad_input":
        return replace(first, born=True, why="the gradient that came to its output is the same")
    caller = caller_of(first.site, pair)
    if caller is None:
        return replace(first, born=True, why="the loss hands the model another gradient")
    why = f"its own code hands another gradient to {first.site!r} than A's does"
    return replace(first, site=caller, other=pair.others.get(caller, ""), call=0, born=True, why=why)


def caller_of(site: str, pair: Pair) -> str | None:
    """The nearest module above a site that was called; None for the model itself."""
    while site:
        site = site.rpartition(".")[0]
        if site in pair.others:
            return site
    return None


def with_sources(sites: list[SiteDiff], pair: Pair) -> list[SiteDiff]:
    """The inputs and outputs with the sites in A that their inputs came from: those that gave the same tensor."""
    givers: dict[tuple[tuple[int, ...], float], str] = {}
    came: dict[tuple[str, int], tuple[str, ...]] = {}
    for site, call in pair.calls():
        key = Key(site, "input", call)
        if "input" in pair.a.kinds:
            names = [givers.get(_print(pair, key, at)) for at in range(len(pair.a.leaves(key)))]
            came[site, call] = tuple(dict.fromkeys(name for name in names if name and name != site))
        out = Key(site, "output", call)
        for at in range(len(pair.a.leaves(out))):
            givers[_print(pair, out, at)] = site
    return [
        replace(one, sources=came[one.site, one.call])
        if one.kind in FORWARD and came.get((one.site, one.call))
        else one
        for one in sites
    ]


def _print(pair: Pair, key: Key, at: int) -> tuple[tuple[int, ...], float]:
    scale = pair.a.scale(key, at)
    shape = tuple(int(n) for n in pair.a.leaves(key)[at].tensor.shape)
    return shape, float(f"{scale.norm:.12e}")


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count} times"
