"""Report: a diff as one HTML file that opens from disk: the verdict, the error along the depth, both sides."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hookline.bundle import html_path, write
from hookline.diffs.found import SiteDiff
from hookline.diffs.listing import charted, kept, pictured, together
from hookline.diffs.pictures import picture

if TYPE_CHECKING:
    from hookline.diffs.result import Diff

STATIC = Path(__file__).parent / "static"
SCRIPT, STYLE = "diff.js", "diff.css"
MOST_PLACES = 4000
MOST_PICTURES = 60
SHARP, SIDE, SMALL = 8, 128, 64
"""The first SHARP pictures have maps of SIDE cells each way, the others of SMALL."""


def report(diff: Diff, path: str | Path) -> Path:
    """Writes a diff to a self-contained HTML file and returns its path.

    >>> import tempfile
    >>> from hookline.diffs.result import Diff
    >>> place = SiteDiff("fc", verdict="within", error=1e-7, tolerance=1e-6, other="fc")
    >>> report(Diff("one.pt", "two.pt", sites=[place]), Path(tempfile.mkdtemp()) / "diff.html").name
    'diff.html'
    """
    path = html_path(path)
    write(path, f"{diff.a} against {diff.b} · hookline", shown(diff), STATIC, SCRIPT, [STYLE])
    return path


def shown(diff: Diff, most: int = MOST_PLACES) -> dict[str, Any]:
    """What is shown of a diff, as plain data: at most so many places, and the values of a few of them."""
    every = together(diff)
    places = kept(every, diff.first, most)
    first = next((at for at, one in enumerate(places) if one is diff.first), None)
    facts = diff.to_json()
    return {
        **{name: facts[name] for name in ("verdict", "sentence", "a", "b", "forwards", "notes")},
        "causes": _plain(facts["causes"]),
        "first": first,
        "places": [one.to_json() for one in places],
        "every": len(every),
        "charted": charted(places, diff.first),
        "pictures": _pictures(diff, places, first),
    }


def _pictures(diff: Diff, places: list[SiteDiff], first: int | None) -> dict[int, Any]:
    """By number of the place: what is shown of its values, where they are at hand."""
    found: dict[int, Any] = {}
    for at in pictured(places, first):
        arrays = diff.values(places[at])
        if arrays is not None:
            found[at] = picture(places[at], arrays, SIDE if len(found) < SHARP else SMALL)
        if len(found) == MOST_PICTURES:
            break
    return found


def _plain(thing: Any) -> Any:
    """What JSON has, of evidence of any kind: what is no number, text or list of such is told as text."""
    if thing is None or isinstance(thing, (str, bool, int)):
        return thing
    if isinstance(thing, float):
        return thing if math.isfinite(thing) else str(thing)
    if isinstance(thing, Mapping):
        return {str(name): _plain(value) for name, value in thing.items()}
    if isinstance(thing, (list, tuple, set, frozenset)):
        return [_plain(one) for one in thing]
    return str(thing)
