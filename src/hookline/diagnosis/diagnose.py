"""Diagnose: the rules applied to every series that there is, and what they found by module."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from hookline.diagnosis.finding import SEVERITIES, Finding
from hookline.diagnosis.rules import ORDER, RULES, Series, recent, rms, vanishing


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


def in_order(found: Mapping[str, Sequence[Finding]]) -> list[Finding]:
    """The findings of all modules in one list: the most severe first, of these the one that was seen first."""
    every = [finding for findings in found.values() for finding in findings]
    return sorted(every, key=lambda one: (SEVERITIES.index(one.severity), one.step))


def _worst_first(findings: list[Finding]) -> list[Finding]:
    """One finding of each rule."""
    kept = {finding.rule: finding for finding in reversed(findings)}
    return sorted(kept.values(), key=lambda finding: ORDER.index(finding.rule))
