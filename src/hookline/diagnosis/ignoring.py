"""Ignoring: findings that somebody does not want to hear of, by rule and by site."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

from hookline.diagnosis.finding import Finding
from hookline.diagnosis.registry import find
from hookline.diagnosis.training import Training
from hookline.errors import InvalidArgument, near
from hookline.globs import matcher


class Ignored(NamedTuple):
    """A rule, None for all of them, and the sites at which it is not wanted."""

    rule: str | None
    matches: Callable[[str], bool]

    def has(self, finding: Finding) -> bool:
        """Whether a finding is one of those."""
        return self.rule in (None, finding.rule) and self.matches(finding.site)


def ignoring(ignore: Iterable[str] | str, training: Training) -> Callable[[Finding], bool]:
    """Whether a finding is to be left out: "still" is a rule, "still:head.*" a rule at sites, "*:head.*" all
    rules.

    InvalidArgument where there is no such rule, or nothing at such a site.
    """
    asked = [ignore] if isinstance(ignore, str) else ignore
    if not isinstance(asked, Iterable):
        raise InvalidArgument(f"ignore={ignore!r}: expected a list such as ['still', 'dead_units:head.*'].")
    parts = [_parsed(one, training) for one in asked]
    return lambda finding: any(one.has(finding) for one in parts)


def _parsed(text: str, training: Training) -> Ignored:
    if not isinstance(text, str):
        raise InvalidArgument(f"ignore: expected texts such as 'still' or 'still:head.*', got {text!r}.")
    name, colon, pattern = text.partition(":")
    rule = None if name == "*" and colon else find(name).name
    if not colon:
        return Ignored(rule, lambda site: True)
    matches = matcher(pattern)
    if not any(map(matches, training.sites)):
        there = f"{near(pattern, training.sites)} The training has {_some(training.sites)}."
        raise InvalidArgument(f"ignore={text!r}: no site matches {pattern!r}.{there}")
    return Ignored(rule, matches)


def _some(sites: list[str], most: int = 8) -> str:
    return ", ".join(map(repr, sites[:most])) + (", ..." if len(sites) > most else "")
