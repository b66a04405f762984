"""Result: what comes out of a diff, to be read, printed, drawn and written."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hookline.diffs.drawing import plot as draw
from hookline.diffs.found import WITHIN, Arrays, Cause, SiteDiff, number_of
from hookline.diffs.report import report as write_report
from hookline.diffs.text import as_text, sentence


@dataclass
class Diff:
    """Where two computations part; it is true where they differ.

    `first` is the first place at which they do, None where they are the same; `sites` has every place, in the
    order in which A runs. `causes` are named where they can be told, the likeliest first. `unmatched` are the
    places that only one side has or that can't be compared. `forwards` lists what was run for it. `bound`
    says what "the same" means here.
    """

    a: str
    b: str
    first: SiteDiff | None = None
    sites: list[SiteDiff] = field(default_factory=list)
    causes: list[Cause] = field(default_factory=list)
    unmatched: list[SiteDiff] = field(default_factory=list)
    forwards: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    values: Callable[[SiteDiff], Arrays | None] = field(default=lambda place: None, repr=False)
    """The two arrays of a place, where they are at hand; None where not."""

    def __bool__(self) -> bool:
        return self.first is not None

    @property
    def bound(self) -> float:
        """By how much outputs that count as the same may differ, relative to their scale: those of the models.

        Where these have the same bits, or are not there, it is the largest of all places.
        """
        within = [one for one in self.sites if one.verdict == WITHIN]
        ends = [one.tolerance for one in within if one.site == "" and one.kind == "output"]
        return max(ends or (one.tolerance for one in within), default=0.0)

    @property
    def differing(self) -> list[SiteDiff]:
        """The places that differ, in order."""
        return [one for one in self.sites if one.differs]

    def to_json(self) -> dict[str, Any]:
        """Plain data, for JSON."""
        return {
            "verdict": "different" if self else "same",
            "sentence": sentence(self),
            "a": self.a,
            "b": self.b,
            "first": None if self.first is None else self.first.to_json(),
            "bound": number_of(self.bound),
            "causes": [one.to_json() for one in self.causes],
            "unmatched": [one.to_json() for one in self.unmatched],
            "forwards": self.forwards,
            "notes": self.notes,
            "sites": [one.to_json() for one in self.sites],
        }

    def __str__(self) -> str:
        return as_text(self)

    def plot(self, ax: Any = None) -> Any:
        """The error along the depth, with the tolerance, as a matplotlib Axes."""
        return draw(self, ax)

    def report(self, path: str | Path) -> Path:
        """Writes one HTML file that shows all of it, and returns its path."""
        return write_report(self, Path(path))
