"""Inside: whatever trains inside a `with` block is found and watched, for notebooks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hookline.diagnosis.finding import SEVERITIES, Finding
from hookline.errors import InvalidArgument
from hookline.launching.folders import folder_for
from hookline.launching.following import Following
from hookline.launching.reasons import why_nothing

MEANT_FOR_ONE = ("model", "modules", "params", "scaler", "resume", "progress")


def watching(to: str | Path | None = None, **options: Any) -> Watching:
    """A context manager that finds and watches the models that train inside of it, built there or before.

    With `to`, the first model's run is kept in that folder, and that of each further one in a folder inside it.
    `options` are those of `watch`: every, where, ops, stats, budget, fingerprint.

    >>> import hookline, torch
    >>> with hookline.watching() as w:
    ...     model = torch.nn.Sequential(torch.nn.Linear(3, 1))
    ...     optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    ...     for _ in range(2):
    ...         model(torch.ones(4, 3)).sum().backward()
    ...         _ = optimizer.step()
    >>> list(w.watches), w.watches["model"].steps
    (['model'], [0, 1])
    """
    if wrong := [name for name in options if name in MEANT_FOR_ONE]:
        raise InvalidArgument(f"watching({wrong[0]}=...): it finds the models itself; that is for `watch`.")
    return Watching(None if to is None else folder_for(to, ""), options)


class Watching:
    """An open or finished `watching` block; `watches` has what was found."""

    def __init__(self, to: Path | None, options: dict[str, Any]) -> None:
        self._to, self._options = to, options
        self._following = Following(to, options)

    def __enter__(self) -> Watching:
        self._following = Following(self._to, self._options)
        self._following.begin()
        self._following.look_around()
        return self

    def __exit__(self, *how: object) -> None:
        self._following.end()

    @property
    def watches(self) -> dict[str, Any]:
        """The watch of each model by its name, those that were found first first."""
        return {model.name: model.watch for model in self._following.models if model.watch is not None}

    def diagnose(self) -> list[Finding]:
        """What is wrong in any of the models, the most severe first."""
        found = [finding for one in self._told() for finding in one.findings]
        return sorted(found, key=lambda one: SEVERITIES.index(one.severity))

    @property
    def verdict(self) -> str:
        """What was found, in a few lines; why nothing was, where nothing trained."""
        from hookline.launching.telling import lines_of

        told = self._told()
        lines = list(lines_of(told)) if told else [why_nothing(self._following, None)]
        return "\n".join([*lines, *self._following.problems])

    def _told(self) -> list[Any]:
        from hookline.launching.judging import judged

        return judged(self._following, {})

    def __repr__(self) -> str:
        names = ", ".join(model.name for model in self._following.models)
        return f"<hookline watching of {names or 'nothing yet'}>"
