"""watch(moments=True): what an optimizer keeps for each parameter, as rows."""

import pytest
import torch
from torch import nn
from torch.optim import SGD, Adam, AdamW, RMSprop

import hookline


def trained(make, steps=4, model=None, **options):
    torch.manual_seed(0)
    model = model or nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2))
    optimizer = make(model.parameters())
    with hookline.watch(model, moments=True, **options) as w:
        for _ in range(steps):
            optimizer.zero_grad()
            model(torch.randn(5, 3)).square().mean().backward()
            optimizer.step()
    return w, model, optimizer


@pytest.mark.parametrize(
    ("make", "names"),
    [
        (lambda p: Adam(p, 0.01), {"moment": "exp_avg", "moment_sq": "exp_avg_sq"}),
        (lambda p: AdamW(p, 0.01, foreach=True), {"moment": "exp_avg", "moment_sq": "exp_avg_sq"}),
        (lambda p: SGD(p, 0.01, momentum=0.9), {"moment": "momentum_buffer"}),
        (lambda p: RMSprop(p, 0.01), {"moment_sq": "square_avg"}),
        (lambda p: SGD(p, 0.01), {}),
    ],
)
def test_they_are_those_of_the_optimizer_after_its_step(make, names):
    w, model, optimizer = trained(make)
    kinds = {row["kind"] for row in w.rows()} & {"moment", "moment_sq"}
    assert kinds == set(names)
    for kind, name in names.items():
        for site, parameter in model.named_parameters():
            rows = w.rows(site, kind=kind)
            assert [row["step"] for row in rows] == [0, 1, 2, 3]
            kept = optimizer.state[parameter][name]
            assert rows[-1]["l2"] == pytest.approx(kept.norm().item(), rel=1e-6)
            assert rows[-1]["count"] == kept.numel()


def test_only_recorded_steps_and_chosen_sites_have_them():
    w, *_ = trained(lambda p: Adam(p, 0.01), steps=6, every=3, where="2")
    rows = w.rows(kind="moment")
    assert {row["step"] for row in rows} == {0, 3} and {row["site"] for row in rows} == {"2.weight", "2.bias"}


def test_without_asking_there_are_none_and_the_training_is_the_same():
    _, watched, _ = trained(lambda p: Adam(p, 0.01))
    torch.manual_seed(0)
    plain = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2))
    optimizer = Adam(plain.parameters(), 0.01)
    with hookline.watch(plain) as w:
        for _ in range(4):
            optimizer.zero_grad()
            plain(torch.randn(5, 3)).square().mean().backward()
            optimizer.step()
    assert w.rows(kind="moment") == []
    assert all(map(torch.equal, plain.parameters(), watched.parameters()))


def test_a_run_keeps_them_and_its_modules_are_those_of_the_model(tmp_path):
    w, *_ = trained(lambda p: Adam(p, 0.01), to=tmp_path / "run")
    with hookline.open_run(tmp_path / "run") as run:
        assert len(run.rows(kind="moment_sq")) == len(w.rows(kind="moment_sq")) == 16
        assert "0.weight" not in {row["site"] for row in run.rows(kind="output")}
    assert hookline.diagnose(tmp_path / "run") == hookline.diagnose(w)


def test_they_need_parameters():
    with pytest.raises(hookline.InvalidArgument, match="moments=True needs parameters"):
        hookline.watch(nn.Linear(2, 2), moments=True, params=False)
