"""Score: what a diff says of two models, beside what the case says."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from bench.diff.case import Case, Recipe

RIGHT = ("detected", "site", "kind", "born", "cause", "cause_any")


@dataclass
class Score:
    """What was right about a diff; of two equal models only `detected` counts, which is then a false alarm."""

    recipe: Recipe
    detected: bool = False
    site: bool = False
    kind: bool = False
    born: bool = False
    cause: bool = False
    cause_any: bool = False
    told: str = ""
    """The first place and the causes, in short."""
    forwards: int = 0
    """How many forwards the diff says that it ran."""
    seconds: float = 0.0
    alone: float = 0.0
    """Seconds of one forward without hookline, the mean of both; with the backward where there is a loss."""
    trouble: str = ""
    """Why there is no diff, if there is none."""

    @property
    def ratio(self) -> float:
        """How long the diff took beside the forwards that it ran."""
        return self.seconds / (self.alone * self.forwards) if self.alone and self.forwards else 0.0


def scored(recipe: Recipe, case: Case, diff: Any) -> Score:
    """The score of a diff."""
    first, causes = diff.first, [one.name for one in diff.causes]
    score = Score(recipe, detected=first is not None, forwards=len(diff.forwards), told=_told(first, diff.causes))
    if case.equal or first is None:
        return score
    score.site = _module(first) in case.sites
    score.kind = first.kind in case.kinds
    score.born = first.born is True if case.is_born else first.kind == "input" or first.born is not True
    score.cause = bool(causes) and causes[0] in case.causes
    score.cause_any = any(one in case.causes for one in causes)
    return score


def _module(place: Any) -> str:
    """The module of a place; a gradient of a weight has the weight's name."""
    return place.site.rpartition(".")[0] if place.kind == "param_grad" else place.site


def _told(first: Any, causes: Sequence[Any]) -> str:
    if first is None:
        return ""
    call = f" #{first.call}" if first.call else ""
    origin = {True: "born", False: "inherited", None: "unknown"}[first.born]
    reasons = ", ".join(f"{one.name} at {one.site or 'the model'}" for one in causes) or "no cause"
    return f"{first.site or 'the model'}{call}:{first.kind} ({origin}); {reasons}"


@dataclass(frozen=True)
class Total:
    """Sums over cases, with how many there are of each kind."""

    broken: int
    equal: int
    counts: dict[str, int]
    alarms: int
    """Equal pairs that are said to differ, or that could not be compared."""
    seconds: float
    """Of a diff, the median over all."""
    largest: Score | None
    """That of the largest models, by the time of a forward: of small ones the time says nothing of large ones."""


def totalled(scores: Sequence[Score]) -> Total:
    """The sums."""
    broken = [one for one in scores if not one.recipe.equal]
    equal = [one for one in scores if one.recipe.equal]
    return Total(
        len(broken),
        len(equal),
        {name: sum(getattr(one, name) for one in broken) for name in RIGHT},
        sum(one.detected or bool(one.trouble) for one in equal),
        median([one.seconds for one in scores if one.seconds] or [0.0]),
        max((one for one in scores if one.ratio), key=lambda one: one.alone, default=None),
    )
