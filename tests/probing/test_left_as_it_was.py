"""A model that raises in the middle, or is interrupted there, is left as it was."""

import random

import numpy as np
import pytest
import torch
from torch import nn

import hookline
from hookline.testing.interrupting import cut
from tests.probing.models import Attention, Remembers, TinyLM, ids, numbers

CALLS = [0]


class Raises(nn.Module):
    """Writes to all that it has, and raises at one of its calls."""

    def __init__(self, at, error):
        super().__init__()
        self.fc, self.norm, self.at, self.error = nn.Linear(6, 4), nn.BatchNorm1d(4), at, error
        self.register_buffer("count", torch.tensor(0))
        self.plain, self.log, self.own = torch.zeros(3), [], random.Random(3)
        CALLS[0] = 0

    def forward(self, x):
        CALLS[0] += 1
        self.count += 1
        self.plain.add_(self.own.random())
        self.log.append(torch.rand(2) + np.random.rand() + random.random())
        with torch.no_grad():
            self.fc.weight.mul_(1.01)
        self.fc.weight.requires_grad_(False)
        self.made = torch.ones(1)
        x = self.norm(self.fc(x))
        if CALLS[0] == self.at:
            raise self.error("here")
        return x


def state(model):
    held = {name: value.clone() for name, value in model.state_dict().items()}
    return held, model.plain.clone(), list(model.log), model.own.getstate(), [m.training for m in model.modules()]


def same(one, other):
    return all(torch.equal(one[0][name], other[0][name]) for name in one[0]) and (
        torch.equal(one[1], other[1]) and one[2:] == other[2:]
    )


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt])
@pytest.mark.parametrize("at", [1, 2, 3, 5, 8])
def test_a_model_that_raises_is_left_as_it_was(at, error):
    model = Raises(at, error)
    model.norm.eval()
    before = state(model)
    model.fc.weight.grad = grad = torch.ones(4, 6)
    generators = torch.get_rng_state(), random.getstate(), repr(np.random.get_state())
    with hookline.testing.untouched(model):
        if error is KeyboardInterrupt:
            with pytest.raises(KeyboardInterrupt):
                hookline.probe(model, numbers(4, 6))
        elif at == 1:
            with pytest.raises(hookline.ForwardError, match="here"):
                hookline.probe(model, numbers(4, 6))
        else:
            hookline.probe(model, numbers(4, 6))
    assert same(state(model), before) and not hasattr(model, "made")
    assert model.fc.weight.grad is grad and model.fc.weight.requires_grad and bool((grad == 1).all())
    assert torch.equal(generators[0], torch.get_rng_state())
    assert generators[1:] == (random.getstate(), repr(np.random.get_state()))
    assert torch.is_grad_enabled() and not hookline.installed(model)


@pytest.mark.parametrize("part", range(30))
def test_an_interrupt_at_any_line_of_ours_leaves_the_model_as_it_was(part):
    model = nn.Sequential(nn.Linear(6, 4), nn.BatchNorm1d(4), Writes())
    inputs = numbers(4, 6)
    with hookline.testing.untouched(model):
        cut(1 + part * 2221, lambda: hookline.probe(model, inputs))
    assert torch.is_grad_enabled()


class Writes(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("mean", torch.zeros(4))
        self.plain = torch.zeros(4)

    def forward(self, x):
        self.mean.add_(1)
        self.plain = self.plain + 1
        return x - 0 * self.mean


def test_a_recording_and_a_watch_that_are_open_see_nothing_of_it():
    model = TinyLM(Attention())
    with hookline.record(model) as recording, hookline.watch(model) as w:
        hookline.probe(model, ids())
    assert not recording.names and not list(w.rows())


def test_hooks_of_the_user_stay_and_inputs_are_not_written_to():
    model = nn.Sequential(nn.ReLU(inplace=True), nn.Linear(6, 2))
    seen = []
    model[0].register_forward_hook(lambda *_: seen.append(1))
    inputs = numbers(4, 6)
    before = inputs.clone()
    with hookline.testing.untouched(model):
        hookline.probe(model, inputs)
    assert seen and torch.equal(inputs, before)


def test_a_model_that_is_trained_goes_on_as_if_it_had_not_been_probed():
    def trained(probed):
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.Dropout(0.5), nn.Linear(8, 2))
        optimizer = torch.optim.Adam(model.parameters())
        for _ in range(5):
            loss = model(torch.randn(8, 6)).square().mean()
            optimizer.zero_grad()
            loss.backward()
            if probed:
                hookline.probe(model, numbers(4, 6))
            optimizer.step()
            if probed:
                hookline.probe(model, numbers(4, 6))
        return model.state_dict()

    plain, probed = trained(False), trained(True)
    assert all(torch.equal(plain[name], probed[name]) for name in plain)


def test_the_same_findings_come_again():
    model = Remembers("plain")
    first, second = (hookline.probe(model, numbers(4, 6)).to_json() for _ in range(2))
    assert first == second
