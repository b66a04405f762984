"""Models: two live models compared. They are run several times; `Diff.forwards` lists the runs.

Two recordings say where the values differ. A run of A again says where it differs from itself, one with its values
moved by one rounding how much is noise. Where the bits differ, both are run once more with A's values at every
call: what differs then was born there.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from hookline.diffs import found
from hookline.diffs.aligning import align
from hookline.diffs.births import Birth, births
from hookline.diffs.causes import causes_at, is_of_framework
from hookline.diffs.following import Way
from hookline.diffs.found import Cause, SiteDiff
from hookline.diffs.live import Live
from hookline.diffs.mapping import Map
from hookline.diffs.measures import coarser, step_of
from hookline.diffs.operators import FirstOperator, first_operator
from hookline.diffs.pairs import Pair, compare, noise_of
from hookline.diffs.reading import FORWARD, Key
from hookline.diffs.result import Diff
from hookline.diffs.stating import caller_of, first_place, with_estimates, with_sources, with_unmatched
from hookline.diffs.tolerance import Given, Noise, Tolerance
from hookline.diffs.ways import Isolated, Measured, Randomness, Shaken, Shaker, floor_of
from hookline.errors import HooklineError, Unsupported

MOST = 0.5
"""Where so many places have another dtype, the change of dtype is meant, and its rounding is allowed."""


@dataclass
class Study:
    """Two models, what was run of them, and what was found out."""

    a: Live
    b: Live
    map: Map | None = None
    rtol: Given = None
    atol: Given = None
    asked_at: str = ""
    """The line at which the diff is asked for: it is no line of the models."""
    forwards: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    states: dict[tuple[str, int], object] = field(default_factory=dict)
    passed: list[str] = field(default_factory=list)
    """The sites whose calls could not be given A's values."""

    def diff(self) -> Diff:
        """Where the two part."""
        pair = self._recorded()
        result = Diff(self.a.described(), self.b.described(), forwards=self.forwards, notes=self.notes)
        result.values = pair.arrays
        sites = compare(pair, None)
        if all(one.verdict == found.EQUAL for one in sites):
            result.sites = with_sources(sites, pair)
            return with_unmatched(result, pair)
        step = self._meant_dtype(sites)
        random = self._against_itself(pair)
        noise = self._shaken(pair, step)
        result.sites = compare(pair, Tolerance(noise, self.rtol, self.atol, measured=True), random)
        added = self._isolated(pair, step)
        result.sites = with_sources(_with_added(result.sites, added), pair)
        with_unmatched(result, pair)
        self._conclude(result, pair, added)
        return result

    # Runs

    def _recorded(self) -> Pair:
        a = self.a.side()
        self.forwards.append("A")
        b = self.b.side()
        self.forwards.append("B")
        pair = Pair(a, b, align(a.entries(), b.entries(), self.map), self.map)
        unread = a.unread | b.unread
        if "" in unread:
            raise Unsupported(
                backend=self.b.backend.name,
                feature="diff of models whose inputs or outputs can't be read",
                why="nested tensors and those that are only described have no array of numbers",
                instead="compare models that give padded tensors, or record both and compare what you need",
            )
        if unread:
            self.notes.append(
                f"tensors that can't be read, such as nested ones, are not compared: {_listed(unread)}"
            )
        return pair

    def _noise(self, pair: Pair, way: Way) -> Noise:
        """How far a run of A whose calls go the way is from the recorded one."""
        if self.a.loss is None:
            measured = Measured(self.a.backend, pair.a, way)
            self.a.run(measured, pair.a.sites)
            return measured.noise
        recorded = self.a.side(way, pair.a.sites)  # gradients come when all is over
        return noise_of(Pair(pair.a, recorded, align(pair.a.entries(), recorded.entries())))

    def _against_itself(self, pair: Pair) -> Noise:
        randomness = Randomness(self.a.backend) if self.a.draws else None
        noise = self._noise(pair, randomness or Way())
        self.forwards.append("A again")
        if randomness is not None:
            self.states = dict(randomness.states)
        apart = sorted({key.site for (key, _), gap in noise.found.items() if gap.largest or gap.odd})
        if apart:
            self.notes.append(
                f"A differs from itself when it is run again, at {len(apart)} sites: {_listed(apart)}"
            )
        return noise

    def _shaken(self, pair: Pair, step: str) -> Noise:
        noise = self._noise(pair, Shaken(Shaker(self.a.backend, step_of(step)), _innermost(pair.a.sites)))
        self.forwards.append("A with its values moved by one rounding")
        return noise

    def _isolated(self, pair: Pair, step: str) -> list[Birth] | None:
        """What each call adds; None where the models can't be run that way."""
        if self.map is not None and self.map.has_layouts:
            self.notes.append("layouts differ by the map, so where errors are born is an estimate")
            return None
        paired = [site for site, _ in pair.alignment.pairs]
        shaker = Shaker(self.a.backend, step_of(step))
        control = Isolated(self.a.backend, pair.a, {site: site for site in paired}, self.states, shaker)
        names = {other: site for site, other in pair.alignment.pairs}
        way = Isolated(self.b.backend, pair.a, names, self.states)
        try:
            self.a.run(control, paired)
            self.forwards.append("A with A's values at every call, moved by one rounding")
            self.b.run(way, list(names))
            self.forwards.append("B with A's values at every call")
        except HooklineError:
            raise
        except Exception as error:  # the model's own code, which does not bear A's values
            text = f"{type(error).__name__}: {error}".splitlines()[0][:200]
            self.notes.append(f"B can't be run with A's values ({text}), so where errors are born is an estimate")
            return None
        self.passed = list(way.passed)
        if self.passed:
            self.notes.append(
                f"calls of {_listed(self.passed)} are made inside of a transform, or of what can't be read: "
                "whether an error is born in them is an estimate"
            )
        floor = Tolerance(floor_of(control), self.rtol, self.atol, measured=True)
        return list(births(way, floor, step))

    def _meant_dtype(self, sites: list[SiteDiff]) -> str:
        """The coarser dtype, where most places have another one in B; else one without steps."""
        floats = [one for one in sites if one.kind == "output" and all(map(step_of, one.dtypes))]
        other = [one for one in floats if one.dtypes[0] != one.dtypes[1]]
        if not floats or len(other) < MOST * len(floats):
            return "int64"
        step = "int64"
        for one in other:
            step = coarser(step, coarser(*one.dtypes))
        self.notes.append(
            f"B computes in {other[0].dtypes[1]}, A in {other[0].dtypes[0]}: rounding to {step} is allowed"
        )
        return step

    # Conclusions

    def _conclude(self, result: Diff, pair: Pair, added: list[Birth] | None) -> None:
        places = {Key(one.site, one.kind, one.call): one for one in result.sites}
        root = places.get(Key("", "input"))
        if root is not None and root.differs:
            result.first = replace(root, born=True, added=root.error, why="the inputs of the model differ")
            result.causes = [Cause("inputs", "", _inputs_sentence(root))]
            return
        estimated = first_place(with_estimates(result.sites), pair)
        if estimated is not None and estimated.site in self.passed:
            result.first, result.causes = estimated, causes_at(self.a, self.b, pair, estimated)
            return
        birth = next((one for one in added or [] if one.differs), None)
        forward = [one for one in result.sites if one.kind in FORWARD and one.differs]
        if birth is not None:
            self._tell_birth(result, pair, birth, places)
        elif forward and added is not None and self.states:
            self._tell_chance(result, pair, forward[0])
        else:
            result.first = first_place(result.sites, pair) or result.first
            if result.first is not None:
                result.causes = causes_at(self.a, self.b, pair, result.first)

    def _tell_chance(self, result: Diff, pair: Pair, first: SiteDiff) -> None:
        """With A's values and random numbers nothing differs: B draws other ones."""
        sentence = "With A's random numbers it gives what A gives: B draws other ones before it."
        caller = caller_of(first.site, pair)
        others = {Key(one.site, one.kind): one for one in result.sites if one.differs}
        while caller and Key(caller, "input") in others:
            caller = caller_of(caller, pair)
        if first.kind == "input" and caller is not None:
            why = f"its own code draws other random numbers before it calls {first.site!r}"
            first = replace(first, site=caller, other=pair.others[caller], kind="output", call=0, why=why)
        result.first = replace(first, born=True, why=first.why or "it draws other random numbers")
        result.causes = [Cause("random numbers", first.site, sentence)]

    def _operator(self, pair: Pair, birth: Birth) -> FirstOperator:
        """The operator at which it shows; of a framework's own module the line at which that is called."""
        module = self.b.tree.modules.get(pair.others.get(birth.site, ""))
        if birth.site in _innermost(pair.a.sites) and is_of_framework(type(module)):
            return FirstOperator(line="" if birth.line == self.asked_at else birth.line)
        operator = first_operator(self.a, self.b, pair, birth, self.states)
        self.forwards += [f"{side} with A's values, for the operators of {birth.site!r}" for side in "AB"]
        return replace(operator, line="") if operator.line == self.asked_at else operator

    def _tell_birth(self, result: Diff, pair: Pair, birth: Birth, places: dict[Key, SiteDiff]) -> None:
        seen = places.get(birth.key) or SiteDiff(
            birth.site,
            call=birth.call,
            other=pair.others.get(birth.site, ""),
            type=pair.a.types.get(birth.site, ""),
        )
        told = (
            seen
            if seen.differs
            else replace(
                seen, verdict=found.DIFFERENT, error=birth.error, tolerance=birth.tolerance, metric=birth.metric
            )
        )
        operator = self._operator(pair, birth)
        why = _birth_sentence(birth, operator.told)
        first = replace(
            told, born=True, added=birth.error, added_tolerance=birth.tolerance, why=why, line=operator.line
        )
        result.first = first
        result.causes = causes_at(self.a, self.b, pair, first, birth, operator)


def _listed(sites: Iterable[str]) -> str:
    """The first names, in words."""
    names = list(sites)
    return ", ".join(repr(site) for site in names[:5]) + (", ..." if len(names) > 5 else "")


def _innermost(sites: list[str]) -> set[str]:
    """The sites below which no other one ran."""
    above = {parent for site in sites for parent in _parents(site)}
    return {site for site in sites if site not in above}


def _parents(site: str) -> list[str]:
    parts = site.split(".")
    return ["", *(".".join(parts[:count]) for count in range(1, len(parts)))] if site else []


def _with_added(sites: list[SiteDiff], added: list[Birth] | None) -> list[SiteDiff]:
    """The places with what each adds; where that could not be run, with what their inputs tell."""
    if added is None:
        return with_estimates(sites)
    most: dict[Key, Birth] = {}
    for birth in added:
        known = most.get(birth.key)
        if known is None or (birth.differs, birth.error) > (known.differs, known.error):
            most[birth.key] = birth
    result = []
    for one in sites:
        known = most.get(Key(one.site, one.kind, one.call))
        if known is not None:
            one = replace(one, added=known.error, added_tolerance=known.tolerance, born=known.differs)
        result.append(one)
    return result


def _birth_sentence(birth: Birth, operator: str) -> str:
    if birth.misfit:
        where = f", before it calls {birth.before!r}" if birth.before else ""
        return f"its own code differs{where}: {birth.misfit}"
    if birth.before:
        return f"its own code hands other values to {birth.before!r} than A's does{operator and f' ({operator})'}"
    return f"with A's inputs it gives another output{operator and f' ({operator})'}"


def _inputs_sentence(root: SiteDiff) -> str:
    where = f" (argument {root.part})" if root.part else ""
    far = f"they differ by {root.error:.2g} of A's largest number"
    return f"The two models are called with other values{where}: {far}."
