"""diagnose: one answer for a watch that is open, the run that it wrote, and its folder."""

import pytest
import torch
from torch import nn

import hookline
from hookline.diagnosis import registry
from hookline.errors import InvalidArgument
from hookline.rows import HasRows
from tests.support.paths import ROOT
from tests.support.rows import row


def train(model, steps=6):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for _ in range(steps):
        optimizer.zero_grad()
        model(torch.rand(8, 4)).square().mean().backward()
        optimizer.step()


@pytest.fixture
def dying():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 2))
    model[0].bias.data.fill_(-100.0)
    return model


def test_a_watch_a_run_and_a_folder_have_the_same_findings(dying, tmp_path):
    with hookline.watch(dying, to=tmp_path / "run") as w:
        train(dying)
        while_open = w.diagnose()
    with hookline.open_run(tmp_path / "run") as run:
        assert isinstance(run, HasRows) and isinstance(w, HasRows)
        found = run.diagnose()
        assert found == hookline.diagnose(run) == hookline.diagnose(tmp_path / "run") == w.diagnose() == while_open
    (dead,) = found
    assert (dead.rule, dead.site, dead.severity, dead.step) == ("dead_units", "1", "error", 0)
    assert dead.evidence["share"] == 1 and dead.evidence["rows"] == [["1", "output"]]
    assert str(dead).startswith("1: dead_units from step 0: all of its outputs are zero") and dead.advice in str(
        dead
    )
    # Nothing comes through the ReLU: no gradient to the layer in front of it. It is one finding.
    assert {(one.rule, one.site) for one in dead.consequences} == {("vanishing", "0"), ("still", "0")}
    health = hookline.health(tmp_path / "run")
    assert [one.rule for one in health["1"]] == ["dead_units"]
    assert {one.rule for one in health["0"]} == {"vanishing", "still"}
    assert health["2"] == []


def test_the_cause_comes_first_and_is_as_bad_as_what_follows(dying):
    with hookline.watch(dying) as w:
        train(dying)
        dying[2].weight.data.fill_(float("nan"))
        train(dying, steps=1)
    found = w.diagnose()
    assert [one.severity for one in found] == ["error", "error"]
    # Of two errors, that which is surer.
    assert [(one.rule, one.step, one.site) for one in found] == [
        ("nan_origin", 6, "2.weight"),
        ("dead_units", 0, "1"),
    ]


def test_a_healthy_training_has_no_findings():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 2))
    with hookline.watch(model) as w:
        train(model)
    assert w.diagnose() == hookline.diagnose(w) == []


def test_rules_can_be_chosen_and_left_out_by_site(dying):
    with hookline.watch(dying) as w:
        train(dying)
    assert [one.rule for one in w.diagnose(rules=["still", "vanishing"])] == ["vanishing"]
    (left,) = w.diagnose(ignore=["dead_units", "vanishing:*"])
    assert (left.rule, left.site, left.consequences) == ("still", "0", ())
    assert w.diagnose(ignore=["*:**"]) == [] == w.diagnose(rules="nan_origin") == w.diagnose(rules=[])
    assert hookline.diagnose(w, ignore="dead_units:1")[0].rule == "vanishing"


@pytest.mark.parametrize(
    ("how", "says"),
    [
        ({"rules": ["dead_unit"]}, r"no rule is called 'dead_unit'\. Did you mean 'dead_units'"),
        ({"rules": 3}, "expected a list of names"),
        ({"ignore": ["stil"]}, "Did you mean 'still'"),
        ({"ignore": ["still:heat.*"]}, "no site matches 'heat.*'"),
        ({"ignore": 3}, "expected a list such as"),
        ({"ignore": [3]}, "expected texts"),
        ({"baseline": 3}, "expected a Run, a Watch or a folder, got int"),
    ],
)
def test_what_can_not_be_asked_is_told(dying, how, says):
    with hookline.watch(dying) as w:
        train(dying, steps=2)
    with pytest.raises(InvalidArgument, match=says):
        w.diagnose(**how)


@pytest.fixture
def forgetting():
    """Takes out the rules that a test adds."""
    before = set(registry.known())
    yield
    for name in set(registry.known()) - before:
        registry.forget(name)


@pytest.mark.usefixtures("forgetting")
def test_a_user_adds_a_rule_and_one_that_raises_is_told_once(dying):
    @hookline.rule("narrow", severity="note", advice="Widen it.")
    def narrow(training):
        for curve in training.trained("output"):
            if curve.stats["count"][0] < 20:
                yield hookline.found(curve.site, curve.steps[0], "it is narrow", confidence=0.5, count=8)

    @hookline.rule("broken")
    def broken(training):
        yield hookline.found("0", 3, "this much was found")
        raise ValueError("no idea")

    with hookline.watch(dying) as w:
        train(dying)
    with pytest.warns(UserWarning, match="rule 'broken' raised ValueError: no idea") as told:
        found = w.diagnose()
    assert len(told) == 1
    assert [(one.rule, one.site) for one in found] == [
        ("dead_units", "1"),
        ("broken", "0"),
        ("narrow", "2"),
        ("narrow", ""),
    ]
    assert found[2].advice == "Widen it." and found[2].evidence == {"count": 8} and found[2].confidence == 0.5


def test_rules_that_can_not_be_are_refused():
    with pytest.raises(InvalidArgument, match="a rule 'still' exists already"):
        hookline.rule("still")(lambda training: [])
    with pytest.raises(InvalidArgument, match="severity='bad'"):
        hookline.rule("mine", severity="bad")
    with pytest.raises(InvalidArgument, match="expected a name"):
        hookline.rule("my rule")
    with pytest.raises(InvalidArgument, match="expected a function of one argument"):
        hookline.rule("mine")(lambda: iter(()))


def test_every_rule_says_what_when_and_why_it_can_be_wrong_and_is_in_the_docs():
    docs = (ROOT / "docs" / "rules.md").read_text()
    for one in registry.chosen(None):
        assert f"`{one.name}`" in docs, one.name
        text = " ".join((one.fn.__doc__ or "").split())
        assert "When:" in text and "Why it can be wrong:" in text, one.name
        assert one.advice and one.severity in ("error", "warning", "note")


def test_a_watch_without_rows_has_no_findings():
    with hookline.watch(nn.Linear(2, 2)) as w:
        assert w.diagnose() == []


def test_what_has_no_rows_can_not_be_diagnosed(tmp_path):
    with pytest.raises(InvalidArgument, match="expected a Run, a Watch or a folder, got Linear"):
        hookline.diagnose(nn.Linear(2, 2))
    with pytest.raises(hookline.RunError, match="there is no run in"):
        hookline.diagnose(tmp_path)
    with hookline.watch(nn.Linear(2, 2)) as w:
        pass
    with pytest.raises(InvalidArgument, match="expected a run's folder"):
        hookline.health(w)


def test_a_run_has_the_audit_of_its_watch(tmp_path):
    class Idle(nn.Module):
        def __init__(self):
            super().__init__()
            self.used, self.unused = nn.Linear(4, 2), nn.Linear(4, 2)

        def forward(self, x):
            return self.used(x)

    model = Idle()
    with hookline.watch(model, to=tmp_path / "run") as w:
        train(model, steps=2)
    with hookline.open_run(tmp_path / "run") as run:
        assert run.audit() == w.audit() and str(run.audit()) == str(w.audit())
        assert run.audit()["unused"].fired == 0 and "never called" in run.audit()["unused"].why


def test_a_run_that_is_not_over_tells_what_it_has(tmp_path):
    model = nn.Sequential(nn.Linear(4, 2), nn.ReLU())
    with hookline.watch(model, to=tmp_path / "run"), hookline.open_run(tmp_path / "run") as run:
        assert [entry.fired for entry in run.audit()] == [0, 0, 0]
        assert "no watch has noted why" in run.audit()["1"].why


def test_a_run_without_outputs_and_one_of_recordings_have_an_audit_too(tmp_path):
    store = hookline.RunStore(tmp_path / "params")
    store.open({"sites": [("fc", "Linear")]})
    store.write([row("fc.weight", kind="param")])
    store.close()
    model = nn.Sequential(nn.Linear(4, 2), nn.ReLU())
    with hookline.record(model, to=tmp_path / "recorded"):
        model(torch.randn(3, 4))
    for folder in ("params", "recorded"):
        with hookline.open_run(tmp_path / folder) as run:
            assert all(entry.fired == 0 and "no watch has noted why" in entry.why for entry in run.audit())
