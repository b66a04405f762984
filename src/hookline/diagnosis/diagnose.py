"""Diagnose: the rules applied to every series of a run, and what they found by module."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from hookline.diagnosis.finding import Finding
from hookline.diagnosis.rules import RULES, SEVERITY, Series, recent, rms, vanishing
from hookline.runs.growing import OpenRun
from hookline.runs.run import Run


def health(run: Run | str | Path) -> dict[str, list[Finding]]:
    """What is wrong with each module of a run, the worst first: {name: findings}; an empty list is a healthy one.

    A Finding has `what` (nan, exploding, dead, vanishing or still), `why`, a sentence, and the `step`.
    """
    folder = run.path if isinstance(run, Run) else Path(run)
    with closing(OpenRun(folder, folder.name)) as opened:
        opened.catch_up()
        names = [name for name, _ in opened.modules()]
        return findings_of(opened.series, opened.columns, owners(names, [one.site for one in opened.series]))


def owners(modules: Iterable[str], sites: Iterable[str]) -> dict[str, str]:
    """The module that each site belongs to: itself, or for a parameter the nearest one above.

    >>> owners(["", "fc"], ["fc", "fc.weight", "scale"])
    {'fc': 'fc', 'fc.weight': 'fc', 'scale': ''}
    """
    known = set(modules)
    found = {}
    for site in sites:
        name = site
        while name not in known and name:
            name = name.rpartition(".")[0]
        found[site] = name
    return found


def findings_of(
    series: Sequence[Series], columns: Callable[[int], Any], owner: dict[str, str]
) -> dict[str, list[Finding]]:
    """The findings of each module that has rows, the worst first; an empty list is a healthy module.

    `columns` gives the steps and the arrays of a series by its number.
    """
    found: dict[str, list[Finding]] = {}
    gradients: dict[str, dict[str, tuple[float, int]]] = {}
    trained = {one.site for one in series if one.mode == "train"}
    for number, one in enumerate(series):
        module = owner[one.site]
        mine = found.setdefault(module, [])
        steps, stats = columns(number)
        if not len(steps):
            continue
        validates = one.mode != "train" and one.site in trained  # alone it is no training
        for test, kinds, only_training in RULES:
            if (kinds is None or one.kind in kinds) and not (validates and only_training):
                finding = test(one, steps, stats)
                mine += [] if finding is None else [finding]
        if one.kind in ("grad_output", "param_grad") and not validates:
            sizes, size = gradients.setdefault(one.kind, {}), recent(rms(stats))
            # The largest of a module's: a bias in front of a norm has no gradient in the best of models.
            if size > sizes.get(module, (-1.0, 0))[0]:
                sizes[module] = size, int(steps[-1])
    for kind, sizes in gradients.items():
        for module, finding in vanishing(kind, sizes):
            found[module].append(finding)
    return {module: _worst_first(some) for module, some in found.items()}


def _worst_first(findings: list[Finding]) -> list[Finding]:
    """One finding of each sort."""
    kept = {finding.what: finding for finding in reversed(findings)}
    return sorted(kept.values(), key=lambda finding: SEVERITY.index(finding.what))
