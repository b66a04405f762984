"""Where NaN was born in a training that is watched and diagnosed."""

import warnings

import pytest
import torch
from torch import nn

import hookline
from hookline.backends.torch import TorchBackend
from hookline.watching.origin import MOST


class Net(nn.Module):
    """Its entropy is NaN once a unit is zero, from step 3 on."""

    def __init__(self):
        super().__init__()
        self.fc, self.out, self.shift = nn.Linear(4, 4), nn.Linear(4, 1), 10.0

    def forward(self, x):
        p = torch.relu(self.fc(x) + self.shift)
        return self.out(p * torch.log(p))


def train(model, steps=6):
    torch.manual_seed(0)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    for step in range(steps):
        model.shift = 10.0 if step < 3 else -100.0
        optimizer.zero_grad()
        model(torch.rand(8, 4)).square().mean().backward()
        optimizer.step()
    return [parameter.detach().clone() for parameter in model.parameters()]


@pytest.fixture
def model():
    torch.manual_seed(0)
    return Net()


def test_the_operator_and_the_line_are_in_the_wiring_and_in_the_run(model, tmp_path):
    with warnings.catch_warnings(), hookline.watch(model, to=tmp_path / "run", diagnose=True) as w:
        warnings.simplefilter("ignore")
        train(model)
    (place,) = w.wiring.nonfinite
    assert (place.op, place.line.partition(":")[0]) == (
        "aten.log",
        "test_watched_origin.py",
    ) and "aten.mul" in place.what
    with hookline.open_run(tmp_path / "run") as run:
        assert run.wiring.nonfinite == [place]
        found = run.diagnose()[0]
    assert found.severity == "error" and found.step == 3 and found.line == place.line


def test_nothing_is_searched_without_diagnosing(model):
    with hookline.watch(model) as w:
        train(model)
    assert w.wiring.nonfinite == []


def test_the_training_goes_on_as_without_it(model):
    torch.manual_seed(0)
    alone = train(Net())
    with warnings.catch_warnings(), hookline.watch(model, diagnose=True):
        warnings.simplefilter("ignore")
        watched = train(model)
    assert all(torch.equal(a, b) or (a.isnan() == b.isnan()).all() for a, b in zip(alone, watched, strict=True))


def test_nan_that_came_with_the_data_is_searched_for_a_few_times_only(model, monkeypatch):
    searched = []
    monkeypatch.setattr(TorchBackend, "find_origin", staticmethod(lambda *args: searched.append(args)))
    with warnings.catch_warnings(), hookline.watch(model, diagnose=True) as w:
        warnings.simplefilter("ignore")
        optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
        for _ in range(10):
            optimizer.zero_grad()
            model(torch.full((8, 4), float("nan"))).mean().backward()
            optimizer.step()
    assert len(searched) == MOST and w.wiring.nonfinite == []
