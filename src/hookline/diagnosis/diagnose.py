"""Diagnose: the rules applied to a training, and what they found: causes first."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from hookline.diagnosis.causes import causes_first
from hookline.diagnosis.finding import SEVERITIES, Finding
from hookline.diagnosis.ignoring import ignoring
from hookline.diagnosis.registry import Rule, chosen
from hookline.diagnosis.training import Training
from hookline.reporting import warn


def findings_in(
    training: Training,
    *,
    baseline: Training | None = None,
    rules: Iterable[str] | str | None = None,
    ignore: Iterable[str] | str = (),
    broken: set[str] | None = None,
) -> list[Finding]:
    """What is wrong with a training, the worst first; what follows from another finding is under that one.

    They are ordered by severity, confidence, step and the order of execution. `rules` are the names of those that
    are asked, all where it is None; `ignore` leaves some out ("still", "still:head.*"). `broken` has the names of
    rules that raised before.
    """
    asked, is_ignored = chosen(rules), ignoring(ignore, training)
    training.baseline = baseline
    every = [one for one in ask(asked, training, broken) if not is_ignored(one)]
    return in_order(causes_first(every, training), training)


def findings_of(training: Training) -> dict[str, list[Finding]]:
    """The findings of each module, the worst first, consequences among them; an empty list is a healthy module."""
    return by_module(findings_in(training), training)


def by_module(findings: Iterable[Finding], training: Training) -> dict[str, list[Finding]]:
    """Findings by the module that they are about, also where they follow from others. Notes are left out: they are
    no illness."""
    found: dict[str, list[Finding]] = {name: [] for name in training.modules}
    for one in in_order([below for finding in findings for below in finding.all], training):
        if one.severity != "note":
            found.setdefault(training.owner(one.site), []).append(one)
    return found


def ask(rules: Iterable[Rule], training: Training, broken: set[str] | None = None) -> list[Finding]:
    """What these rules find, of each rule one finding for each site. A rule that raises is told and left out.

    `broken` has the names of rules that raised before; they are not asked again.
    """
    broken = set() if broken is None else broken
    found: dict[tuple[str, str], Finding] = {}
    for rule in rules:
        if rule.name in broken:
            continue
        try:
            for one in rule.findings(training):
                before = found.setdefault((one.rule, one.site), one)
                if _weight(one) < _weight(before):
                    found[one.rule, one.site] = one
        except Exception as error:  # the other rules go on, and so does the training
            broken.add(rule.name)
            text = f"rule {rule.name!r} raised {type(error).__name__}: {error}; its findings are missing"
            warn(text, stacklevel=2)
    return list(found.values())


def in_order(findings: Sequence[Finding], training: Training) -> list[Finding]:
    """Findings by severity, confidence, step and the order of execution."""
    return sorted(findings, key=lambda one: (*_weight(one), training.place(one.site)))


def _weight(finding: Finding) -> tuple[int, float, int]:
    return SEVERITIES.index(finding.severity), -round(finding.confidence, 1), finding.step
