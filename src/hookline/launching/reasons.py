"""Reasons: why nothing was watched in a script."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hookline.diagnosis.finding import Finding

if TYPE_CHECKING:
    from hookline.launching.following import Following


def why_nothing(following: Following, crash: Finding | None) -> str:
    """One sentence that tells what was missing."""
    said = "" if crash is None else f" {crash.why[:1].upper()}{crash.why[1:]}."
    return f"nothing was watched: {_reason(following)}.{said}"


def _reason(following: Following) -> str:
    seen = following.seen
    if following.bad_sites is not None:
        return f"--where means nothing in the model that was found. {str(following.bad_sites).rstrip('.')}"
    if "torch" not in seen:
        return "the script did not import torch"
    if following.problems:
        return "see the problem below"
    if "optimizer" in seen:
        return "an optimizer was made, but the tensors that it holds are in no module that is alive"
    if "backward" in seen:
        return "a backward was run, but it reached no parameter of a module"
    if "call" in seen:
        return "modules were called, but none with parameters, and no optimizer was made"
    return (
        "torch was imported, but no module was called and no optimizer was made in this process. "
        "Trainings in processes that the script starts are not seen"
    )
