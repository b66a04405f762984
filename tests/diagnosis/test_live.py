"""watch(diagnose=True): rules run while the training does, and each finding is told once."""

import time
import warnings

import pytest
import torch
from torch import nn

import hookline
from hookline.diagnosis.registry import forget
from hookline.errors import FindingRaised, InvalidArgument
from hookline.watching import live


@pytest.fixture(autouse=True)
def _unhurried(request, monkeypatch):
    """Trainings here take milliseconds: of these, the rules may take more than their share."""
    if "looking_takes" not in request.node.name:
        monkeypatch.setattr(live, "SHARE", 1e9)


def make(dead=False):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
    if dead:
        model[0].bias.data.fill_(-100.0)
    return model


def train(model, steps=12, spoil_at=None, after=lambda step: None):
    torch.manual_seed(1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for step in range(steps):
        if step == spoil_at:
            model[2].weight.data[0, 0] = float("nan")
        optimizer.zero_grad()
        model(torch.rand(8, 4)).square().mean().backward()
        optimizer.step()
        after(step)


def test_each_finding_is_told_once_and_as_the_run_has_it(tmp_path):
    told = []
    model = make(dead=True)
    with hookline.watch(model, to=tmp_path / "run", diagnose=True, on_finding=told.append) as w:
        train(model)
        seen_live = list(told)
    assert [(one.rule, one.site, one.step) for one in seen_live] == [("dead_units", "1", 0)]
    assert told == seen_live and w.findings[0] == told[0]
    (stored,) = hookline.diagnose(tmp_path / "run")
    assert (stored.rule, stored.site, stored.step) == (told[0].rule, told[0].site, told[0].step)


def test_what_is_told_is_what_the_run_said_at_that_step():
    told, then = [], []
    model = make()
    with hookline.watch(model, diagnose=True, on_finding=told.append) as w:
        train(model, spoil_at=6, after=lambda step: then.append(w.diagnose()))
    assert [one for one in told if one.rule == "nan_origin"] == [
        one for one in then[6] if one.rule == "nan_origin"
    ]
    assert told[0].step == 6


def test_by_default_it_warns():
    model = make(dead=True)
    with (
        pytest.warns(UserWarning, match="hookline: error: 1: dead_units from step 0"),
        hookline.watch(model, diagnose=True),
    ):
        train(model)
    model = make()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with hookline.watch(model, diagnose=True) as w:
            train(model)
    assert w.findings == []


def test_an_error_raises_where_the_step_ends():
    model = make()
    done = []
    watch = hookline.watch(model, diagnose=True, on_finding="raise")
    with pytest.raises(FindingRaised, match=r"2\.weight: nan_origin from step 3") as raised, watch:
        train(model, spoil_at=3, after=done.append)
    assert done == [0, 1, 2, 3] and raised.value.finding.site == "2.weight"
    assert not hookline.installed(model)


def test_stop_ends_the_block_and_what_follows_goes_on():
    model = make()
    done = []
    with hookline.watch(model, diagnose=True, on_finding="stop") as w:
        train(model, spoil_at=3, after=done.append)
        done.append("not reached")
    assert done == [0, 1, 2, 3] and w.findings[0].rule == "nan_origin"
    assert not hookline.installed(model) and w.rows(step=3)


def test_a_warning_does_not_stop_a_training():
    model = make()

    def crawl():
        with hookline.watch(model, diagnose={"rules": ["update_ratio"]}, on_finding="raise") as w:
            optimizer = torch.optim.SGD(model.parameters(), lr=1e-9)
            for _ in range(20):
                optimizer.zero_grad()
                (1e3 * model(torch.rand(8, 4)).square().mean()).backward()
                optimizer.step()
        return w.findings

    with pytest.warns(UserWarning, match="update_ratio"):
        found = crawl()
    assert [one.severity for one in found] == ["warning"]


def test_who_reads_is_not_stopped_but_the_training_is():
    model = make()
    done = []
    with pytest.raises(FindingRaised), hookline.watch(model, diagnose=True, on_finding="raise") as w:
        train(model, spoil_at=3, after=lambda step: done.append(len(w.rows(kind="update", step=step))))
    assert done == [4, 4, 4, 4]  # found when step 3 was read, raised when the model is called again


def test_training_is_the_same_to_the_bit_with_rules_running():
    plain, watched = make(), make()
    train(plain)
    with hookline.watch(watched, diagnose=True):
        train(watched)
    assert all(torch.equal(a, b) for a, b in zip(plain.parameters(), watched.parameters(), strict=True))


def test_what_fails_is_told_once_and_the_training_goes_on():
    @hookline.rule("broken_live")
    def broken_live(training):
        raise ValueError("no idea")

    def bad(finding):
        raise KeyError("nor I")

    try:
        model = make(dead=True)
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            with hookline.watch(model, diagnose=True, on_finding=bad) as w:
                train(model)
        texts = [str(one.message) for one in told]
        assert sum("rule 'broken_live' raised" in text for text in texts) == 1
        assert sum("on_finding" in text and "nor I" in text for text in texts) == 1
        assert w.steps == list(range(12))
    finally:
        forget("broken_live")


def test_looking_takes_a_small_share_of_the_time(monkeypatch):
    looks = []
    original = live.findings_in

    def slowly(training, **how):
        looks.append(len(training.steps))
        time.sleep(0.05)
        return original(training, **how)

    monkeypatch.setattr(live, "findings_in", slowly)
    model = make()
    with hookline.watch(model, diagnose=True):
        train(model, steps=60)
    # 60 steps take a fraction of a second: more than the first look and the last would be too much.
    assert looks[0] == 1 and looks[-1] == 60 and len(looks) <= 4


@pytest.mark.parametrize(
    ("how", "says"),
    [
        ({"diagnose": True, "on_finding": "shout"}, "expected 'warn', 'raise', 'stop' or a function"),
        ({"on_finding": "raise"}, "give diagnose=True"),
        ({"diagnose": {"rule": []}}, "expected True, or a dict with any of rules, ignore, baseline"),
        ({"diagnose": {"rules": ["dead"]}}, "no rule is called 'dead'"),
        ({"diagnose": 3}, "expected True, or a dict"),
    ],
)
def test_what_can_not_be_asked_for_is_told_before_training(how, says):
    with pytest.raises(InvalidArgument, match=says):
        hookline.watch(make(), **how)


def test_a_good_run_to_compare_with(tmp_path):
    good = make()
    with hookline.watch(good, to=tmp_path / "good"):
        train(good, steps=30)
    again = make()
    with hookline.watch(again) as same:
        train(again, steps=30)
    other = make()
    with hookline.watch(other) as w:
        train(other, steps=15)
        other[2].weight.data.mul_(50.0)
        train(other, steps=15)
    assert same.diagnose(baseline=tmp_path / "good") == []
    found = w.diagnose(baseline=tmp_path / "good", rules=["baseline"])
    assert (found[0].site, found[0].step) == ("2", 15) and "where the good run has" in found[0].why
    assert {one.rule for one in found[0].consequences} == {"baseline"}
    with hookline.open_run(tmp_path / "good") as run:
        assert w.diagnose(baseline=run, rules=["baseline"]) == found
