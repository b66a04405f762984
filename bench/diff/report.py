"""Report: scores as lines of a terminal."""

from __future__ import annotations

from collections.abc import Sequence

from bench.diff.case import SETS
from bench.diff.score import Score, Total, totalled

NAMES = {
    "detected": "said to differ",
    "site": "first site right",
    "kind": "kind right",
    "born": "born or not, right",
    "cause": "first cause right",
    "cause_any": "a right cause among them",
}
LETTERS = {"detected": "d", "site": "S", "kind": "k", "born": "b", "cause": "C", "cause_any": "c"}


def line_of(score: Score) -> str:
    """A pair in one line: what was right ("dSkbCc"), or whether two equal models were said to differ."""
    if score.trouble:
        marks = "no diff"
    elif score.recipe.equal:
        marks = "ALARM" if score.detected else "same"
    else:
        marks = "".join(letter if getattr(score, name) else "-" for name, letter in LETTERS.items())
    cost = f"{score.forwards:3} forwards x {score.ratio:.1f}" if score.ratio else ""
    told = score.trouble or score.told
    return f"{score.recipe.name:28} {score.recipe.family:16} {marks:8} {cost:18} {told}".rstrip()


def summary_of(scores: Sequence[Score]) -> str:
    """The sums of each set, and what the letters mean."""
    lines = [", ".join(f"{letter} {NAMES[name]}" for name, letter in LETTERS.items())]
    for one in SETS:
        if found := [score for score in scores if score.recipe.set == one]:
            lines += _lines(one, totalled(found))
            # By its name, which of the second set is not told.
            if one == "known" and (largest := totalled(found).largest) is not None:
                lines.append(f"  {cost_of(largest)}")
    return "\n".join(lines)


def _lines(name: str, total: Total) -> list[str]:
    lines = [f"{name}: {total.broken} broken, {total.equal} equal"]
    if total.broken:
        lines += [f"  {NAMES[key]:26} {count:3} of {total.broken}" for key, count in total.counts.items()]
    if total.equal:
        lines.append(f"  {'equal, with an alarm':26} {total.alarms:3} of {total.equal}")
    return [*lines, f"  a diff takes {total.seconds:.2f} s, median"]


def cost_of(score: Score) -> str:
    """What a diff cost, beside the forwards that it names."""
    return (
        f"{score.recipe.name}: {score.seconds:.2f} s, {score.ratio:.1f} x its {score.forwards} forwards "
        f"of {1000 * score.alone:.0f} ms"
    )
