"""Text: what a diff says, for a terminal: the verdict, the first place, the causes, and a short table."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from hookline.diffs import found

if TYPE_CHECKING:
    from hookline.diffs.found import SiteDiff
    from hookline.diffs.result import Diff

STORED = ("bits", "stat")
"""The metrics of places of a run, which have a step."""
ROWS = 10
UNMATCHED = 8


def sentence(diff: Diff) -> str:
    """The verdict in one sentence."""
    first = diff.first
    compared = f"{len(diff.sites):,} places compared"
    if first is None:
        bound = f"to within {diff.bound:.2g} of each tensor's scale" if diff.bound else "to the bit"
        return f"The same, {bound} ({compared})."
    is_run = first.metric in STORED
    where = f"{first.label}{f' at step {first.step:,}' if is_run else ''}"
    if first.verdict in (found.MISSING, found.EXTRA, found.CALLS, found.REORDERED):
        return f"Different, first at {where}: {first.why} ({compared})."
    return f"Different, first at {where}: {born(first)} ({compared})."


def born(place: SiteDiff) -> str:
    """Whether the error of a place is made there."""
    about = " by estimate" if place.estimated else ""
    if place.born is None:
        return "whether the error is born there is not known"
    return f"the error is {'born there' if place.born else 'inherited from before'}{about}"


def number(value: float | None) -> str:
    """A number of a table.

    >>> number(0.000123), number(0.0), number(None), number(math.inf)
    ('1.2e-04', '0', '', 'inf')
    """
    if value is None:
        return ""
    if value == 0 or not math.isfinite(value):
        return f"{value:g}"
    return f"{value:.1e}"


def as_text(diff: Diff) -> str:
    """All of it, for a terminal."""
    lines = [sentence(diff), f"  A: {diff.a}", f"  B: {diff.b}"]
    if diff.first is not None:
        lines += _first(diff.first)
    for cause in diff.causes:
        lines.append(f"  cause: {cause.name}: {cause.sentence}")
    lines += _table(diff)
    lines += _unmatched(diff.unmatched)
    lines += [f"  note: {note}" for note in diff.notes]
    if diff.forwards:
        lines.append(f"  runs: {'; '.join(diff.forwards)}")
    return "\n".join(lines)


def _first(first: SiteDiff) -> list[str]:
    lines = []
    if first.why:
        lines.append(f"  why: {first.why}")
    if first.metric == "bits":
        lines.append(f"  error: other bits; statistics differ by {number(first.error)}")
    elif first.verdict in (found.DIFFERENT, found.SHAPE):
        unit = {"max_rel": "of the largest number", "l2_rel": "of the norm"}.get(first.metric, "")
        added = f"; it adds {number(first.added)}" if first.added is not None else ""
        error = f"{number(first.error)} {unit}".rstrip()
        lines.append(f"  error: {error}, allowed are {number(first.tolerance)}{added}")
    if first.line:
        lines.append(f"  line: {first.line}")
    return lines


def _table(diff: Diff) -> list[str]:
    """The first places that differ or, where none does, those with the largest errors."""
    shown = [one for one in diff.differing if one.kind not in ("input",)] or diff.differing
    title = "place that differs" if len(shown) == 1 else "places that differ"
    if not shown:
        shown = sorted((one for one in diff.sites if one.error), key=lambda one: -one.error)
        title = "largest differences"
    if not shown:
        return []
    rows = [("site", "error", "allowed", "adds", "")]
    rows += [
        (one.label, number(one.error), number(one.tolerance), number(one.added), _remark(one))
        for one in shown[:ROWS]
    ]
    widths = [max(len(row[at]) for row in rows) for at in range(4)]
    count = f"{len(shown):,} {title}" + (f", the first {ROWS}" if len(shown) > ROWS else "")
    lines = [f"  {count}:"]
    for site, error, allowed, added, remark in rows:
        cells = (
            f"{site:<{widths[0]}}  {error:>{widths[1]}}  {allowed:>{widths[2]}}  {added:>{widths[3]}}  {remark}"
        )
        lines.append(f"    {cells}".rstrip())
    return lines


def _remark(place: SiteDiff) -> str:
    if place.verdict not in (found.DIFFERENT, found.WITHIN):
        return place.why or place.verdict
    if not place.differs:
        return ""
    return {True: "born here", False: "inherited", None: ""}[place.born]


def _unmatched(places: list[SiteDiff]) -> list[str]:
    if not places:
        return []
    what = "place" if len(places) == 1 else "places"
    lines = [f"  {len(places):,} {what} that can't be compared, or not one to one:"]
    lines += [f"    {one.verdict}: {one.label}: {one.why}" for one in places[:UNMATCHED]]
    if len(places) > UNMATCHED:
        lines.append(f"    and {len(places) - UNMATCHED:,} more: diff.unmatched")
    return lines
