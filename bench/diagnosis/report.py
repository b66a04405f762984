"""Report: scores as lines of a terminal."""

from __future__ import annotations

from collections.abc import Sequence

from bench.diagnosis.labels import SETS
from bench.diagnosis.score import Score, Total, totalled

NAMES = {
    "detected": "detected",
    "site": "right site first",
    "site_of_three": "right site among three",
    "cause": "right cause first",
    "cause_of_three": "right cause among three",
    "onset": "onset within 5 steps",
}
LETTERS = {"detected": "d", "site": "S", "site_of_three": "s", "cause": "C", "cause_of_three": "c", "onset": "o"}


def line_of(score: Score) -> str:
    """A program in one line: what was right ("dSsCco"), or how many findings a healthy one has."""
    label = score.label
    if score.trouble:
        marks = "no verdict"
    elif label.healthy:
        marks = f"{score.errors}E {score.warnings}W" if score.errors or score.warnings else "silent"
    else:
        marks = "".join(letter if getattr(score, name) else "-" for name, letter in LETTERS.items())
    kind = "healthy" if label.healthy else label.fault
    changed = "" if score.same else "  CHANGED"
    told = score.trouble or "; ".join(score.told)
    return f"{label.name:18} {kind:17} {marks:10}{' hard' if label.hard else ''}{changed}  {told}"


def summary_of(scores: Sequence[Score], repaired: Sequence[Score] = ()) -> str:
    """The sums of each set, and what the letters mean."""
    lines = [", ".join(f"{letter} {NAMES[name]}" for name, letter in LETTERS.items())]
    for one in SETS:
        if found := [score for score in scores if score.label.set == one]:
            lines += _lines(one, totalled(found))
        if found := [score for score in repaired if score.label.set == one]:
            lines += _lines(f"{one}, repaired", totalled(found))
    return "\n".join(lines)


def _lines(name: str, total: Total) -> list[str]:
    lines = [f"{name}: {total.broken} broken, {total.healthy} healthy"]
    if total.broken:
        lines += [f"  {NAMES[key]:24} {count:3} of {total.broken}" for key, count in total.counts.items()]
    if total.healthy:
        lines.append(f"  healthy with an error    {total.alarmed:3} of {total.healthy}")
        lines.append(f"  healthy with a warning   {total.warned:3} of {total.healthy}")
    if total.changed:
        lines.append(f"  did something else under hookline: {', '.join(total.changed)}")
    return lines
