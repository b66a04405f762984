"""Page: docs/diagnosis.md, made of the scores."""

from __future__ import annotations

import datetime
import platform
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path

from bench.diagnosis.report import NAMES
from bench.diagnosis.score import NEAR, Score, Total, totalled

INTRO = Path(__file__).parent / "intro.md"
"""What stands above the tables, with the places of the numbers in it."""
PUBLISHED = Path(__file__).parent / "published.md"
"""Figures of others, and what they hide."""
GOALS = {"detected": 95, "site": 80, "cause": 80}


def page_of(scores: Sequence[Score], repaired: Sequence[Score]) -> str:
    """The text of the page."""
    tuning = [one for one in scores if one.label.set == "tuning"]
    held = [one for one in scores if one.label.set == "held-out"]
    second = [one for one in scores if one.label.set == "second"]
    third = [one for one in scores if one.label.set == "third"]
    changed = [one.label.name for one in [*scores, *repaired] if not one.same]
    intro = INTRO.read_text().format(
        date=datetime.date.today().isoformat(),
        hookline=version("hookline"),
        torch=version("torch"),
        python=platform.python_version(),
        count=len(scores),
        broken=totalled(scores).broken,
        healthy=totalled(scores).healthy,
        tuning=len(tuning),
        held=len(held),
        sums=_sums(totalled(tuning), totalled(held)),
        repaired=_repaired(repaired),
        same=f"They differ in: {', '.join(changed)}." if changed else "They are the same in all.",
        near=NEAR,
    )
    tables = [
        _programs("The held-out programs", held),
        _programs("The programs that rules were tuned on", tuning),
    ]
    if second:
        tables.insert(0, _programs("The second set, by someone who had not seen the rules", second))
    if third:
        tables.insert(0, _programs("The third set, by someone else who had not seen the rules", third))
    return intro + "\n".join(tables) + "\n" + PUBLISHED.read_text()


def _sums(tuning: Total, held: Total) -> str:
    rows = ["| | tuned on | held out | goal, held out |", "|---|---|---|---|"]
    rows.append(f"| broken programs | {tuning.broken} | {held.broken} | |")
    for key, name in NAMES.items():
        goal = f">= {GOALS[key]} %" if key in GOALS else ""
        shares = [f"{one.counts[key]} ({_percent(one.counts[key], one.broken)})" for one in (tuning, held)]
        rows.append(f"| {name} | {shares[0]} | {shares[1]} | {goal} |")
    rows.append(f"| healthy programs | {tuning.healthy} | {held.healthy} | |")
    rows.append(f"| with an error | {_of(tuning.alarmed, tuning)} | {_of(held.alarmed, held)} | 0 |")
    rows.append(f"| with a warning | {_of(tuning.warned, tuning)} | {_of(held.warned, held)} | <= 5 % |")
    return "\n".join(rows) + "\n"


def _of(count: int, total: Total) -> str:
    return f"{count} ({_percent(count, total.healthy)})"


def _percent(count: int, of: int) -> str:
    return f"{100 * count / max(of, 1):.0f} %"


def _repaired(scores: Sequence[Score]) -> str:
    if not scores:
        return ""
    rows = ["The broken programs without their fault are healthy programs that look nearly the same:\n"]
    rows += ["| repaired programs | tuned on | held out |", "|---|---|---|"]
    both = [totalled([one for one in scores if one.label.set == which]) for which in ("tuning", "held-out")]
    rows.append("| all | " + " | ".join(str(one.healthy) for one in both) + " |")
    rows.append("| with an error | " + " | ".join(_of(one.alarmed, one) for one in both) + " |")
    rows.append("| with a warning | " + " | ".join(_of(one.warned, one) for one in both) + " |")
    loud = [f"{one.label.name} ({one.told[0]})" for one in scores if one.told]
    return "\n".join(rows) + (f"\n\nNot silent: {'; '.join(loud)}.\n" if loud else "\n")


def _programs(title: str, scores: Sequence[Score]) -> str:
    rows = [f"## {title}\n", "| program | what is wrong | detected | site | cause | onset | first finding |"]
    rows.append("|---|---|---|---|---|---|---|")
    for one in scores:
        if not one.label.healthy:
            what = f"{one.label.about} ({one.label.style}){', hard' if one.label.hard else ''}"
            marks = [_mark(one.detected), _mark(one.site, one.site_of_three)]
            marks += [_mark(one.cause, one.cause_of_three), _mark(one.onset)]
            told = one.trouble or (one.told[0] if one.told else "")
            rows.append(f"| {one.label.name} | {what} | {' | '.join(marks)} | {told} |")
    rows += ["", "| healthy program | what looks wrong in it | findings |", "|---|---|---|"]
    for one in scores:
        if one.label.healthy:
            told = one.trouble or "; ".join(one.told) or "none"
            rows.append(f"| {one.label.name} | {one.label.about} ({one.label.style}) | {told} |")
    return "\n".join(rows) + "\n"


def _mark(first: bool, among_three: bool = False) -> str:
    return "yes" if first else "2nd or 3rd" if among_three else "no"
