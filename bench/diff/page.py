"""Page: the section of docs/diff.md between two markers, made of the scores."""

from __future__ import annotations

import datetime
import platform
from collections.abc import Sequence
from importlib.metadata import version

from bench.diff.report import NAMES, cost_of
from bench.diff.score import RIGHT, Score, Total, totalled

BEGIN, END = "<!-- bench-diff -->", "<!-- /bench-diff -->"


def with_section(page: str, section: str) -> str:
    """The page, with another section between its markers."""
    if page.count(BEGIN) != 1 or page.count(END) != 1:
        raise ValueError(f"expected {BEGIN} and {END} once each in the page")
    before, rest = page.split(BEGIN)
    return f"{before}{BEGIN}\n{section}{END}{rest.split(END)[1]}"


def section_of(scores: Sequence[Score]) -> str:
    """The sums of both sets, then every pair of the first. The second has sums only: nobody is to look at it."""
    known = [one for one in scores if one.recipe.set == "known"]
    unseen = [one for one in scores if one.recipe.set == "unseen"]
    sums = totalled(known)
    return "\n".join([_intro(), _sums(sums, totalled(unseen)), _cost(sums), _broken(known), _equal(known), ""])


def _intro() -> str:
    made = f"`make bench-diff`, {datetime.date.today().isoformat()}"
    versions = f"hookline {version('hookline')}, torch {version('torch')}, Python {platform.python_version()}"
    return f"""
Measured by {made}: {versions}, CPU.

A is a reference, B a port of it with one mistake, or with none. That each pair parts where its label says is
proved with plain torch, without hookline (`tests/project/test_bench_diff.py`). A site is right if it is the
innermost module that makes the error; for a mistake in a container's own code that is the container. Nobody
looked at the pairs of the second set while `diff` was written, so only its sums are here. Where these figures
hide something: all models but one are small, and each pair has one mistake only.
"""


def _sums(known: Total, unseen: Total) -> str:
    rows = [
        "| | first set | second set |",
        "|---|---|---|",
        f"| broken pairs | {known.broken} | {unseen.broken} |",
    ]
    for key in RIGHT:
        counts = [f"{one.counts[key]} of {one.broken}" for one in (known, unseen)]
        rows.append(f"| {NAMES[key]} | {' | '.join(counts)} |")
    rows.append(f"| equal pairs | {known.equal} | {unseen.equal} |")
    rows.append(f"| of them said to differ | {known.alarms} | {unseen.alarms} |")
    rows.append(f"| seconds of a diff, median | {known.seconds:.2f} | {unseen.seconds:.2f} |")
    return "\n".join(rows) + "\n"


def _cost(known: Total) -> str:
    return "" if known.largest is None else f"The largest models, for the time: {cost_of(known.largest)}.\n"


def _broken(scores: Sequence[Score]) -> str:
    rows = [
        "| what is wrong in B | site | kind | born | cause | what is said first |",
        "|---|---|---|---|---|---|",
    ]
    for one in scores:
        if not one.recipe.equal:
            marks = [_mark(one.site), _mark(one.kind), _mark(one.born), _mark(one.cause, one.cause_any)]
            rows.append(f"| {_about(one)} | {' | '.join(marks)} | {_said(one)} |")
    return "\n".join(rows) + "\n"


def _equal(scores: Sequence[Score]) -> str:
    rows = ["| what is different in B, within rounding | what is said |", "|---|---|"]
    rows += [f"| {_about(one)} | {_said(one)} |" for one in scores if one.recipe.equal]
    return "\n".join(rows) + "\n"


def _about(score: Score) -> str:
    return f"{score.recipe.about} ({score.recipe.family})"


def _said(score: Score) -> str:
    if score.trouble:
        return f"no diff: {score.trouble}"
    return score.told or "the same"


def _mark(first: bool, later: bool = False) -> str:
    return "yes" if first else "later" if later else "no"
