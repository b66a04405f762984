"""The verdict: one sentence, the cause with its step, layer, line, numbers, what follows, and what to try."""

from dataclasses import replace

from hookline.diagnosis.diagnose import findings_in
from hookline.diagnosis.finding import Finding
from hookline.diagnosis.verdict import verdict
from tests.support.trainings import steady, training, wired

BROKEN = wired(a_weight={"grads": 0, "cut": "by detach in forward", "cut_line": "net.py:7"})


def test_nothing_is_wrong_and_what_was_looked_at():
    one = training(steady(), wired())
    told = verdict(findings_in(one), one)
    assert (told.sentence, told.severity, told.findings) == ("Nothing is wrong.", "", [])
    assert "20 recorded steps, 4 modules and 4 parameters" in str(told)
    assert told.to_json()["looked"] == told.looked and told.looked["rules"] > 30


def test_a_cause_is_told_with_its_place_its_line_and_what_to_try():
    one = training(steady(), BROKEN)
    told = verdict(findings_in(one), one)
    assert told.severity == "error"
    assert told.sentence.startswith("1 thing is wrong: from step 0, a.weight: no gradient ever comes to a.weight")
    text = " ".join(str(told).split())
    assert (
        "✖ a.weight, from step 0 (net.py:7): no gradient" in text
        and "the graph is cut (by detach in forward)" in text
    )
    assert "steps 20" in text and "try: Look for .detach()" in text
    assert max(map(len, str(told).splitlines()[1:])) <= 110


def test_many_findings_and_consequences_are_counted():
    one = training(steady(), wired())
    follow = tuple(Finding("still", "warning", "a", step, f"it is {step}") for step in range(8))
    every = [Finding("x", "warning", f"l{n}", n, "it is so", consequences=follow) for n in range(7)]
    told = verdict([*every, replace(every[0], severity="note", site="b")], one)
    assert told.sentence.startswith("7 things are probably wrong: from step 0, l0: it is so")
    lines = str(told).splitlines()
    assert sum("-> and 3 more" in line for line in lines) == 5 and any("and 2 more" in line for line in lines)
    assert any("1 note, no faults" in line for line in lines)


def test_a_training_of_which_nothing_was_recorded():
    assert verdict([], training()).sentence == "There is nothing to look at: no step was recorded."
