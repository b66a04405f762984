"""The programs of bench/diagnosis: their labels fit them, and a verdict is scored as the definitions say."""

import ast
import re
from dataclasses import replace

import pytest

from bench.diagnosis.check import better, metrics
from bench.diagnosis.labels import HERE, PROOFS, SETS, Label, read_labels, rules_of_faults
from bench.diagnosis.page import page_of
from bench.diagnosis.report import line_of, summary_of
from bench.diagnosis.score import Score, scored, totalled

LABELS = read_labels()
NAMES = {one.name for one in LABELS}
BROKEN = [one for one in LABELS if not one.healthy]


def test_every_program_has_a_label_and_every_label_a_program():
    assert set((HERE / "programs").rglob("*.py")) == {one.path for one in LABELS}
    assert len(NAMES) == len(LABELS)


def test_there_are_enough_of_each_kind_and_most_are_held_out():
    assert len(BROKEN) >= 48 and len(LABELS) - len(BROKEN) >= 26
    assert sum(one.set != "tuning" for one in LABELS) >= 0.6 * len(LABELS)
    classes = {which: {one.fault for one in BROKEN if one.set == which} for which in SETS}
    assert classes["tuning"] <= classes["held-out"]


@pytest.mark.parametrize("label", BROKEN, ids=lambda one: one.name)
def test_a_label_of_a_broken_program_fits_it(label):
    assert label.fault in rules_of_faults() and label.sites and label.proof in PROOFS
    assert 0 <= label.onset[0] <= label.onset[1]
    assert label.twin in {"", *(one.name for one in LABELS if one.healthy)}
    assert label.fix and ast.dump(ast.parse(label.fixed())) != ast.dump(ast.parse(label.path.read_text()))


@pytest.mark.parametrize("label", LABELS, ids=lambda one: one.name)
def test_a_program_knows_nothing_of_hookline_and_tells_nothing_of_its_fault(label):
    text = label.path.read_text()
    assert "hookline" not in text and "manual_seed" in text and "torch.save(" in text
    comments = re.findall(r"#.*", text)
    assert not [one for one in comments if re.search(r"bug|broken|wrong|fault|fix|should", one, re.I)]


def finding(rule, site, step, severity="error"):
    return {"rule": rule, "site": site, "step": step, "severity": severity}


LABEL = Label("x", "tuning", "", "", fault="dead", sites=("fc1*",), onset=(10, 12))


def test_a_verdict_is_scored_by_its_first_findings():
    first = scored(LABEL, [finding("dead_units", "fc1", 17)])
    assert (first.detected, first.site, first.cause, first.onset) == (True, True, True, True)
    late = scored(LABEL, [finding("dead_units", "fc1", 18)])
    assert late.cause and not late.onset


def test_errors_come_first_and_notes_do_not_count():
    found = [
        finding("loss_stuck", "fc1", 0, "note"),
        finding("dead_units", "fc1", 10, "warning"),
        finding("still", "fc2", 0),
    ]
    score = scored(LABEL, found)
    assert score.told[0].startswith("still at fc2")
    assert (score.site, score.site_of_three, score.cause, score.cause_of_three) == (False, True, False, True)
    assert score.onset and (score.errors, score.warnings) == (1, 1)
    assert not scored(LABEL, found[:1]).detected


def test_a_fourth_finding_is_too_late():
    found = [finding("still", "fc2", 0)] * 3 + [finding("dead_units", "fc1", 10)]
    score = scored(LABEL, found)
    assert score.detected and not (score.site_of_three or score.cause_of_three or score.onset)


def test_healthy_programs_are_summed_by_the_worst_finding():
    healthy = replace(LABEL, fault="", sites=())
    both = scored(healthy, [finding("still", "", 0), finding("still", "", 0, "warning")])
    one = scored(healthy, [finding("still", "", 0, "warning")])
    total = totalled([both, one, scored(healthy, []), scored(LABEL, [])])
    assert (total.broken, total.healthy, total.alarmed, total.warned) == (1, 3, 1, 1)
    assert (
        "2 of 3" not in summary_of([both, one])
        and "1E 1W" in line_of(both)
        and "silent" in line_of(scored(healthy, []))
    )


def test_the_page_tells_a_program_that_did_something_else():
    held = replace(LABEL, set="held-out", name="other")
    page = page_of([scored(LABEL, [finding("dead_units", "fc1", 10)]), Score(held, same=False)], [])
    assert "They differ in: other." in page and "| detected | 1 (100 %) | 0 (0 %) | >= 95 % |" in page
    assert "| x |  () | yes | yes | yes | yes | dead_units at fc1, step 10 |" in page


def test_the_metric_of_a_program_is_read_from_what_it_prints():
    told = "start\nstep 0 loss 2.50\nstep 1 loss: nan\nlosses 7\nstep 2, val loss=1e-3\n"
    first, second, third = metrics(LABEL, told)
    assert (first, third) == (2.5, 1e-3) and second != second
    assert better(LABEL, 1.0, float("nan"), 0.8) and not better(LABEL, 0.9, 1.0, 0.8)
    assert better(replace(LABEL, higher=True), 1.3, 1.0, 0.8)
