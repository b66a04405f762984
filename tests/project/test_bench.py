"""The harness of the timings: what it tells of cases that are known. No timing decides here."""

from contextlib import contextmanager

import pytest

from bench import harness, load, profiling
from bench.harness import Case, Goal, Table, measure
from bench.report import Result, as_markdown, as_text


def clocked(name, *seconds, **more):
    """A case that tells these seconds, one after the other, from the first round that counts on."""
    told = iter([9.0] * harness.WARM_UP + list(seconds))
    return Case(name, lambda: next(told), own_clock=True, **more)


def test_a_ratio_is_the_median_of_rounds_and_beside_it_stands_that_of_the_fastest():
    table = Table("t", [clocked("plain", 1.0, 2.0, 4.0), clocked("other", 3.0, 4.0, 4.0, goal=Goal(2.5))])
    _, line = measure(table, 3).lines
    assert (line.ratio, line.best, line.reached) == ("2.00x", "3.00x", "yes, 2.000x (best 3.000x)")


def test_a_goal_on_what_is_added():
    cases = [
        clocked("plain", 1.0),
        clocked("theirs", 2.0),
        clocked("ours", 4.0, goal=Goal(1.1, "extra", "theirs")),
    ]
    assert measure(Table("t", cases), 1).lines[2].reached == "no, 3.000x (best 3.000x)"


def test_short_rounds_go_on_up_to_a_number_and_those_asked_for_are_exact(monkeypatch):
    table = Table("t", [Case("plain", lambda: None)], rounds=2)
    assert measure(table).rounds == harness.MOST_ROUNDS and measure(table, 4).rounds == 4
    monkeypatch.setattr(harness, "SECONDS", 0.0)
    assert measure(table).rounds == 2


def test_a_case_that_raises_or_is_not_installed_is_told():
    def broken():
        raise ValueError("no. More words")

    cases = [
        Case("plain", lambda: None),
        Case("broken", broken),
        Case("absent", lambda: None, needs="no_such_name"),
    ]
    _, one, other = measure(Table("t", cases), 2).lines
    assert (one.note, other.note) == ("ValueError: no.", "not installed")


def test_a_report_tells_the_load():
    measured = measure(Table("t", [Case("plain", lambda: None)]), 2)
    result = Result("t", measured.lines, "A note.", measured.rounds, "load average 0.10 at the start")
    assert "Load average 0.10 at the start." in as_text(result)
    assert "2 rounds. A note. Load average 0.10 at the start." in as_markdown([result])


@pytest.mark.parametrize(("busy", "warned"), [(0.4, False), (0.6, True)])
def test_others_work_is_told_on_stderr_above_half_a_core(busy, warned, monkeypatch, capsys):
    clock = iter([(0.0, 0.0, 0.0), (10.0, 10.0 + 10 * busy, 10.0)])
    state = {}

    def tick():
        state["now"], state["busy"], state["own"] = next(clock)
        return state["now"]

    monkeypatch.setattr(load.time, "monotonic", tick)
    monkeypatch.setattr(load, "_busy", lambda: state["busy"])
    monkeypatch.setattr(load, "_own", lambda: state["own"])
    load.Meter().warn("row")
    assert ("row: others kept 0.60 cores" in capsys.readouterr().err) is warned


def test_a_profile_names_the_functions_of_the_chosen_cases(monkeypatch):
    monkeypatch.setattr(profiling, "SECONDS", 0.0)
    entered = []

    @contextmanager
    def around():
        entered.append(True)
        yield

    cases = [Case("plain", sorted), Case("hookline.x", lambda: sorted([2, 1]), around), Case("other", sorted)]
    (case,) = profiling.chosen(Table("t", cases), "")
    told = profiling.profiled(case)
    assert case.name == "hookline.x" and entered == [True]
    assert f"{profiling.LEAST} runs" in told and "sorted" in told and "by cumulative time" in told
    assert [one.name for one in profiling.chosen(Table("t", cases), "OTHER")] == ["other"]
