"""diagnose: one answer for a watch that is open, the run that it wrote, and its folder."""

import pytest
import torch
from torch import nn

import hookline
from hookline.errors import InvalidArgument
from hookline.rows import HasRows
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
    (dead,) = [finding for finding in found if finding.rule == "dead"]
    assert (dead.site, dead.severity, dead.step, dict(dead.evidence)) == ("1", "warning", 5, {"zeros": 1.0})
    assert str(dead).startswith("1: dead at step 5: all of its outputs are zero.") and dead.advice in str(dead)
    # Nothing comes through the ReLU: no gradient to the layer in front of it, no input to the weight behind it.
    assert {finding.site for finding in found if finding.rule == "still"} == {"0.weight", "2.weight"}
    assert hookline.health(tmp_path / "run")["1"] == [dead] == [f for f in found if f.site == "1"][:1]


def test_errors_come_before_warnings_and_early_ones_before_late_ones(dying):
    with hookline.watch(dying) as w:
        train(dying)
        dying[2].weight.data.fill_(float("nan"))
        train(dying, steps=1)
    found = w.diagnose()
    assert [one.severity for one in found] == sorted(one.severity for one in found)
    errors = [one for one in found if one.severity == "error"]
    assert [one.step for one in errors] == sorted(one.step for one in errors) and errors[0].rule == "nan"
    assert {one.site for one in errors} >= {"2", ""} and errors[0].step == 6


def test_a_healthy_training_has_no_findings():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 2))
    with hookline.watch(model) as w:
        train(model)
    assert w.diagnose() == hookline.diagnose(w) == []


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
