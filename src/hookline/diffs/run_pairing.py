"""Run pairing: which series of one run is which series of another, and what only one of them has."""

from __future__ import annotations

from typing import NamedTuple

from hookline.diffs import found
from hookline.diffs.aligning import ORDER, UNWRAPPED, Alignment, align
from hookline.diffs.entries import Entry
from hookline.diffs.found import SiteDiff
from hookline.diffs.mapping import Map
from hookline.diffs.naming import normalised
from hookline.diffs.run_reading import Key, StoredRun
from hookline.errors import InvalidArgument, NoSuchSite
from hookline.globs import matcher
from hookline.rows import OF_PARAMETERS

SHOWN = 4


class Paired(NamedTuple):
    """The series that both runs have, in A's order, what only one has, and remarks on how they were found.

    `modes` are sites that were trained in one run and not in the other.
    """

    pairs: list[tuple[Key, Key]]
    unmatched: list[SiteDiff]
    notes: list[str]
    modes: dict[str, tuple[str, str]]


def paired(a: StoredRun, b: StoredRun, mapping: Map | None, where: str | None) -> Paired:
    """Which series of A is which of B; InvalidArgument where there is none in common."""
    _check(a, where)
    alignment = align(_entries(a), _entries(b), mapping)
    other = _Names(a, b, alignment, mapping)
    pairs: list[tuple[Key, Key]] = []
    alone: list[Key] = []
    modes: dict[str, tuple[str, str]] = {}
    for key in (one for one in a.keys if _is_meant(a, one, where)):
        name = other(key)
        same = None if name is None else key._replace(site=name)
        turned = None if same is None or same in b.known else same._replace(mode=_other(key.mode))
        if turned in b.known and key._replace(mode=_other(key.mode)) not in a.known:
            modes[key.site], same = (key.mode, _other(key.mode)), turned
        if same is not None and same in b.known:
            pairs.append((key, same))
        else:
            alone.append(key)
    if not pairs:
        raise InvalidArgument(_nothing_in_common(a, b))
    taken = {key for _, key in pairs}
    extra = [key for key in b.keys if key not in taken and _is_meant(b, key, where)]
    notes: list[str] = []
    unmatched = _unmatched(a, b, alone, alignment, "a", pairs, notes)
    unmatched += _unmatched(b, a, extra, alignment, "b", pairs, notes)
    return Paired(pairs, unmatched, [*notes, *_how(alignment)], modes)


class _Names:
    """B's name for a site of A."""

    def __init__(self, a: StoredRun, b: StoredRun, alignment: Alignment, mapping: Map | None) -> None:
        self._a, self._mapping = a, mapping
        self._modules = dict(alignment.pairs)
        self._sites = {key.site for key in b.keys}
        self._bare = {normalised(key.site): key.site for key in b.keys if key.kind in OF_PARAMETERS}

    def __call__(self, key: Key) -> str | None:
        if self._mapping is not None and (said := self._mapping.other(key.site)) in self._sites:
            return said
        if key.kind not in OF_PARAMETERS and "/" not in key.site:
            return self._modules.get(key.site)
        module = self._a.module_of(key.site, key.kind)
        if module in self._modules:
            rest = key.site[len(module) :].removeprefix(".")
            joint = "" if rest.startswith("/") or not self._modules[module] else "."
            if (name := f"{self._modules[module]}{joint}{rest}") in self._sites:
                return name
        return self._bare.get(normalised(key.site))


def _entries(run: StoredRun) -> list[Entry]:
    """The modules that have rows, in the order in which they ran."""
    calls: dict[str, int] = {}
    for key in run.keys:
        if key.kind not in OF_PARAMETERS:
            site = run.module_of(key.site, key.kind)
            calls[site] = max(calls.get(site, 1), key.call + 1)
    return [Entry(name, run.types.get(name, ""), at, calls[name]) for at, name in enumerate(calls)] or [
        Entry(name, kind, at) for at, (name, kind) in enumerate(run.types.items())
    ]


def _check(run: StoredRun, where: str | None) -> None:
    """NoSuchSite where no site is meant."""
    if where is not None and not isinstance(where, str):
        raise InvalidArgument(f"where={where!r}: expected the name of a site, or a glob such as 'layer*'.")
    if not any(_is_meant(run, key, where) for key in run.keys):
        sites = dict.fromkeys(name for key in run.keys for name in (key.site, run.module_of(key.site, key.kind)))
        raise NoSuchSite(where, sites, "(These are the sites of run A.)")


def _is_meant(run: StoredRun, key: Key, where: str | None) -> bool:
    """Whether a series is of a site that is meant, or of a part of it that has no name of its own there."""
    if where is None:
        return True
    matches = matcher(where)
    return matches(key.site) or matches(run.module_of(key.site, key.kind))


def _unmatched(
    one: StoredRun,
    other: StoredRun,
    alone: list[Key],
    alignment: Alignment,
    side: str,
    pairs: list[tuple[Key, Key]],
    notes: list[str],
) -> list[SiteDiff]:
    """What only one run has, a place each; what a whole kind, mode or rank is missing for is told once."""
    own, others = ("A", "B") if side == "a" else ("B", "A")
    wrappers = {name for which, name in alignment.wrappers if which == side}
    matched = {(key.site, key.kind) for key in (pair[side == "b"] for pair in pairs)}
    told: dict[str, None] = {}
    places: dict[tuple[str, str], SiteDiff] = {}
    for key in alone:
        if (lacking := _lacking(key, other)) is not None:
            told[f"only {own} has rows of {lacking}; these are not compared."] = None
        elif key.site not in wrappers and (key.site, key.kind) not in places:
            is_call = (key.site, key.kind) in matched
            verdict = found.CALLS if is_call else found.MISSING if side == "a" else found.EXTRA
            why = (
                f"{own} calls it more often" if is_call else f"only {own} has it; {others} may not have watched it"
            )
            places[key.site, key.kind] = SiteDiff(
                key.site,
                key.kind,
                key.call if is_call else 0,
                verdict=verdict,
                other="" if side == "a" else key.site,
                type=one.types.get(one.module_of(key.site, key.kind), ""),
                why=why,
            )
    notes += told
    return list(places.values())


def _lacking(key: Key, other: StoredRun) -> str | None:
    """Of what the other run has no row at all, in words."""
    if key.rank not in other.ranks:
        return f"rank {key.rank}"
    if key.kind not in other.kinds:
        return f"kind {key.kind!r}"
    return f"mode {key.mode!r}" if key.mode not in other.modes else None


def _how(alignment: Alignment) -> list[str]:
    """Remarks on names that are not the same."""
    by: dict[str, list[str]] = {}
    for one, other in alignment.pairs:
        if one != other:
            by.setdefault(alignment.how[one], []).append(f"{one or '(model)'} = {other or '(model)'}")
    found = []
    for how, names in by.items():
        shown = ", ".join(names[:SHOWN]) + (", ..." if len(names) > SHOWN else "")
        if how == UNWRAPPED:
            found.append(f"{len(names)} sites have the same name without wrappers: {shown}.")
        elif how == ORDER:
            found.append(f"{len(names)} sites were paired by their type and order: {shown}. `map` names others.")
    return found


def _other(mode: str) -> str:
    return "eval" if mode == "train" else "train"


def _nothing_in_common(a: StoredRun, b: StoredRun) -> str:
    names: list[str] = []
    for run in (a, b):
        sites = list(dict.fromkeys(key.site or "(model)" for key in run.keys))
        names.append(", ".join(map(repr, sites[:SHOWN])) + (", ..." if len(sites) > SHOWN else ""))
    return (
        f"the runs have no site in common: {a.label} has {names[0]}; {b.label} has {names[1]}. "
        "If they are of one model, tell by `map` which is which."
    )
