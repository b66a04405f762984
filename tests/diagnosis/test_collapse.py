"""Every sample gets one output, or several layers do the work of one; and what only looks like it."""

import copy

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import hookline

pytestmark = pytest.mark.usefixtures("nothing_was_compiled")
STEPS = 80


@pytest.fixture(autouse=True)
def _seed():
    torch.manual_seed(3)


def told(model, step_of, steps=STEPS, lr=3e-3):
    """Findings but for notes; `step_of()` gives a loss."""
    optimizer = torch.optim.Adam([one for one in model.parameters() if one.requires_grad], lr)
    with hookline.watch(model) as watch:
        for _ in range(steps):
            optimizer.zero_grad()
            step_of().backward()
            optimizer.step()
    return [one for one in hookline.diagnose(watch) if one.severity != "note"]


def views():
    x = torch.randn(48, 20)
    return x + 0.2 * torch.randn_like(x), x + 0.2 * torch.randn_like(x)


def encoder():
    return nn.Sequential(nn.Linear(20, 32), nn.ReLU(), nn.Linear(32, 8))


class Normalised(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = encoder()

    def forward(self, x):
        return F.normalize(self.inner(x), dim=1)


def drawn_together(model):
    a, b = views()
    return (model(a) - model(b)).pow(2).sum(1).mean()


def kept_apart(model):
    a, b = views()
    return F.cross_entropy(model(a) @ model(b).t() / 0.3, torch.arange(48))


def with_variance(model):
    a, b = (model(one) for one in views())
    return (a - b).pow(2).mean() + F.relu(1 - a.std(0)).mean()


@pytest.mark.parametrize(
    ("model", "loss", "site"),
    [
        (encoder, drawn_together, "2"),
        (Normalised, drawn_together, ""),
        (encoder, kept_apart, None),
        (Normalised, kept_apart, None),
        (encoder, with_variance, None),
    ],
)
def test_embeddings_that_nothing_keeps_apart_are_told(model, loss, site):
    model = model()
    found = told(model, lambda: loss(model), steps=120, lr=6e-3)
    assert [(one.rule, one.site) for one in found] == ([] if site is None else [("collapsed", site)])


class Pooled(nn.Module):
    """Takes a mean over the batch where one over the sequence is meant."""

    def __init__(self, dim):
        super().__init__()
        self.inp, self.out, self.dim = nn.Linear(6, 16), nn.Linear(16, 3), dim

    def forward(self, x):
        h = F.relu(self.inp(x))
        return self.out(h - h + h.mean(self.dim, keepdim=True)).mean(1)


@pytest.mark.parametrize(("dim", "expected"), [(0, ["collapsed"]), (1, [])])
def test_a_mean_over_the_batch_is_told(dim, expected):
    model, truth = Pooled(dim), torch.randn(6, 3)

    def loss():
        x = torch.randn(32, 1, 6).expand(-1, 5, -1) + 0.1 * torch.randn(32, 5, 6)
        return F.cross_entropy(model(x), (x.mean(1) @ truth).argmax(1))

    assert [one.rule for one in told(model, loss)] == expected


def test_an_answer_that_is_large_beside_its_differences_is_no_collapse():
    model = nn.Sequential(nn.Linear(6, 32), nn.ReLU(), nn.Linear(32, 1))

    def loss():
        x = torch.randn(64, 6)
        return F.l1_loss(model(x), 30 + x[:, :1])

    assert told(model, loss, lr=2e-2, steps=150) == []


class Positions(nn.Module):
    """The same for every sample by design, inside of a model that tells samples apart."""

    def __init__(self):
        super().__init__()
        self.words, self.places, self.out = nn.Embedding(12, 16), nn.Embedding(6, 16), nn.Linear(16, 12)

    def forward(self, ids):
        return self.out(self.words(ids) + self.places(torch.arange(6).expand(len(ids), 6)))


def test_positions_are_the_same_for_all_by_design():
    model = Positions()

    def loss():
        ids = torch.randint(0, 12, (32, 6))
        return F.cross_entropy(model(ids).flatten(0, 1), (ids.flatten() + 1) % 12)

    assert told(model, loss) == []


class Mixture(nn.Module):
    def __init__(self, experts, gate):
        super().__init__()
        self.experts, self.gate = nn.ModuleList(experts), gate

    def forward(self, x):
        weights = torch.softmax(self.gate(x), -1)
        return sum(weights[:, place : place + 1] * one(x) for place, one in enumerate(self.experts))


def zero_gate():
    gate = nn.Linear(6, 3)
    nn.init.zeros_(gate.weight)
    nn.init.zeros_(gate.bias)
    return gate


def expert():
    return nn.Sequential(nn.Linear(6, 12), nn.Tanh(), nn.Linear(12, 3))


def copied(gate):
    one = expert()
    return Mixture([copy.deepcopy(one) for _ in range(3)], gate())


@pytest.mark.parametrize(
    ("make", "expected"),
    [
        (lambda: copied(zero_gate), [("copies", "experts")]),
        (lambda: copied(lambda: nn.Linear(6, 3)), []),  # the gate tells them apart
        (lambda: Mixture([expert() for _ in range(3)], zero_gate()), []),
        (lambda: Mixture([shared := expert(), nn.Sequential(shared, nn.Linear(3, 3))], nn.Linear(6, 2)), []),
    ],
)
def test_experts_that_stay_copies_are_told(make, expected):
    model, truth = make(), torch.randn(6, 3)

    def loss():
        x = torch.randn(32, 6)
        return F.cross_entropy(model(x), (x @ truth).argmax(1))

    assert [(one.rule, one.site) for one in told(model, loss)] == expected


def test_twins_that_get_the_same_are_told_and_a_frozen_copy_is_not():
    class Twins(nn.Module):
        def __init__(self, freezes):
            super().__init__()
            self.left = encoder()
            self.right = copy.deepcopy(self.left).requires_grad_(not freezes)

        def forward(self, x):
            return self.left(x) + self.right(x)

    for freezes, expected in ((False, ["copies"]), (True, [])):
        model = Twins(freezes)
        found = told(model, lambda model=model: F.mse_loss(model(x := torch.randn(32, 20)), x[:, :8]))
        assert [one.rule for one in found] == expected


def test_samples_are_looked_at_seldom_and_change_no_bit():
    def trained(watches):
        torch.manual_seed(0)
        model = encoder()
        optimizer = torch.optim.Adam(model.parameters(), 1e-2)
        with hookline.watch(model) if watches else torch.enable_grad() as watch:
            for _ in range(40):
                optimizer.zero_grad()
                drawn_together(model).backward()
                optimizer.step()
        return model, watch

    plain, _ = trained(False)
    model, watch = trained(True)
    assert all(torch.equal(a, b) for a, b in zip(plain.parameters(), model.parameters(), strict=True))
    looks = watch.training().wiring.modules[""].spreads
    assert [step for step, *_ in looks] == [1, 3, 5, 7, 9, 12, 16, 22, 30]
    assert all(0 < spread < size for _, spread, size in looks)
    assert not any(one._forward_hooks or one._forward_pre_hooks for one in model.modules())
