"""Probed: the findings of a probe, with what was looked at and what could not be."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from hookline.diagnosis.finding import SEVERITIES, Finding


class Probed(list[Finding]):
    """The findings, the worst first. `made` names the probes that were made, `skipped` says why others were not.

    >>> print(Probed([], ["batch", "state"], {"mask": "the inputs have no mask"}))
    nothing is wrong
    looked at: batch, state
    not looked at: mask (the inputs have no mask)
    """

    def __init__(self, findings: Iterable[Finding], made: Iterable[str], skipped: Mapping[str, str]) -> None:
        super().__init__(sorted(findings, key=lambda one: SEVERITIES.index(one.severity)))
        self.made = list(made)
        self.skipped = dict(skipped)

    def to_json(self) -> dict[str, Any]:
        """Plain data, for JSON."""
        return {"findings": [one.to_json() for one in self], "made": self.made, "skipped": self.skipped}

    def __str__(self) -> str:
        lines = [line for one in self for line in _shown(one)]
        if not any(one.severity != "note" for one in self):
            lines.insert(0, "nothing is wrong")
        if self.made:
            lines.append(f"looked at: {', '.join(self.made)}")
        lines += [f"not looked at: {name} ({why})" for name, why in self.skipped.items()]
        return "\n".join(lines)


def _shown(one: Finding) -> list[str]:
    where = f" ({one.line})" if one.line else ""
    lines = [f"{one.severity}: {one.rule} at {one.site or '(model)'}{where}", f"  {one.why}."]
    return [*lines, f"  {one.advice}"] if one.advice else lines
