"""Faults that no row shows by itself: each beside trainings that look nearly the same and are healthy."""

import copy
import math

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.optim.lr_scheduler import LambdaLR

import hookline

pytestmark = pytest.mark.usefixtures("nothing_was_compiled")
TRUTH = torch.randn(12, 4, generator=torch.Generator().manual_seed(0))


@pytest.fixture(autouse=True)
def _seed():
    torch.manual_seed(5)


def batch(size=48):
    x = torch.randn(size, 12)
    return x, (x @ TRUTH).argmax(1)


def told(model, optimizer=None, loss=F.cross_entropy, scheduler=None, steps=70, notes=False):
    optimizer = optimizer or torch.optim.Adam(model.parameters(), 3e-3)
    with hookline.watch(model) as watch:
        for _ in range(steps):
            x, y = batch()
            optimizer.zero_grad()
            loss(model(x), y).backward()
            optimizer.step()
            if scheduler is not None:
                scheduler.step()
    found = hookline.diagnose(watch)
    return [(one.rule, one.site) for one in found if notes or one.severity != "note"]


def mlp(width=32):
    return nn.Sequential(nn.Linear(12, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 4))


# Activations that are functions


class Functional(nn.Module):
    def __init__(self, act, std=None, bias=0.0):
        super().__init__()
        self.first, self.second, self.last = nn.Linear(12, 32), nn.Linear(32, 32), nn.Linear(32, 4)
        self.act = act
        for one in (self.first, self.second) if std else ():
            nn.init.normal_(one.weight, std=std)
        self.second.bias.data.add_(bias)

    def forward(self, x):
        return self.last(self.act(self.second(self.act(self.first(x)))))


class Gated(nn.Module):
    """A gate at its ends on purpose: it multiplies, and goes into no layer."""

    def __init__(self):
        super().__init__()
        self.value, self.select, self.last = nn.Linear(12, 32), nn.Linear(12, 32), nn.Linear(32, 4)
        nn.init.normal_(self.select.weight, std=20)

    def forward(self, x):
        return self.last(self.value(x) * torch.sigmoid(self.select(x)))


@pytest.mark.parametrize(
    ("model", "expected"),
    [
        (lambda: Functional(torch.tanh, 3.0), [("saturated", "first")]),
        (lambda: Functional(torch.sigmoid, 12.0), [("saturated", "first")]),
        (lambda: Functional(F.relu, bias=-20.0), [("dead_units", "second")]),
        (lambda: Functional(lambda x: F.relu(x, inplace=True), bias=-20.0), [("dead_units", "second")]),
        (lambda: Functional(torch.tanh), []),
        (lambda: Functional(torch.tanh, 0.3), []),
        (lambda: Functional(F.relu, bias=-0.5), []),
        (Gated, []),
    ],
)
def test_activations_that_are_functions_are_judged_by_what_comes_into_them(model, expected):
    assert told(model()) == expected


# Learning rates


def noam(step):
    return 32**-0.5 * min((step + 1) ** -0.5, (step + 1) * 20**-1.5)


@pytest.mark.parametrize(
    ("rate", "factor", "expected"),
    [
        (4e-3, lambda step: 4e-3 * 0.5 * (1 + math.cos(step / 30)), ["lr_small"]),
        (3e-3, lambda step: 3e-3 * 0.99**step, ["lr_small"]),
        (2e-7, lambda step: 1.0, ["lr_small"]),
        (4e-3, lambda step: 0.5 * (1 + math.cos(step / 30)), []),
        (0.5, noam, []),
        (3e-3, lambda step: min(1.0, (step + 1) / 30), []),
    ],
)
def test_a_rate_that_a_schedule_leaves_nothing_of_is_told(rate, factor, expected):
    model = mlp()
    optimizer = torch.optim.Adam(model.parameters(), rate)
    assert [rule for rule, _ in told(model, optimizer, scheduler=LambdaLR(optimizer, factor))] == expected


@pytest.mark.parametrize(("rate", "expected"), [(0.5, ["update_ratio"]), (0.02, [])])
def test_first_steps_that_spoil_the_weights_are_told(rate, expected):
    model = mlp()
    found = told(model, torch.optim.Adam(model.parameters(), rate), lambda out, y: F.cross_entropy(out.tanh(), y))
    assert [rule for rule, _ in found][:1] == expected


@pytest.mark.parametrize(("decay", "expected"), [(5.0, ["decay_large"]), (1e-3, [])])
def test_decay_that_is_all_of_adams_gradient_is_told(decay, expected):
    model = mlp()
    optimizer = torch.optim.Adam(model.parameters(), 3e-3, weight_decay=decay)
    assert [rule for rule, _ in told(model, optimizer)] == expected


# Gradients that are zero


class Coded(nn.Module):
    def __init__(self, code):
        super().__init__()
        self.encoder, self.decoder, self.code = nn.Linear(12, 16), nn.Linear(16, 4), code

    def forward(self, x):
        return self.decoder(self.code(self.encoder(x)))


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        (lambda z: torch.round(4 * z), ["no_gradient"]),
        (torch.sign, ["no_gradient"]),
        (lambda z: z + (torch.round(z) - z).detach(), []),  # straight through
        (lambda z: z.clamp(-3, 3), []),
    ],
)
def test_an_operator_without_a_slope_is_told(code, expected):
    assert [rule for rule, _ in told(Coded(code))] == expected


# Frozen by mistake


def frozen(model, *parts):
    for part in parts:
        model[part].requires_grad_(False)
    return model


class Alias(nn.Module):
    """The target is the encoder itself, or a copy of it, and frozen."""

    def __init__(self, copies):
        super().__init__()
        self.encoder, self.head = mlp()[:3], nn.Linear(32, 4)
        self.target = copy.deepcopy(self.encoder) if copies else self.encoder
        self.target.requires_grad_(False)

    def forward(self, x):
        with torch.no_grad():
            aim = self.target(x)
        return self.head(self.encoder(x) + aim)


def trained_before():
    model = mlp()
    told(model, steps=40)
    return frozen(model, 0, 2)


@pytest.mark.parametrize(
    ("model", "expected"),
    [
        (lambda: frozen(mlp(), 0, 2), [("frozen_fresh", "2")]),
        (lambda: Alias(copies=False), [("frozen_fresh", "encoder")]),
        (lambda: Alias(copies=True), []),
        (trained_before, []),
        (lambda: frozen(mlp(), 4), []),  # a small part: a note
        (mlp, []),
    ],
)
def test_random_weights_that_are_frozen_are_told(model, expected):
    model = model()
    wanted = [one for one in model.parameters() if one.requires_grad]
    assert told(model, torch.optim.Adam(wanted, 3e-3)) == expected


# Scores that are minimised


def shares(output, y):
    return torch.softmax(output, 1), F.one_hot(y, 4).float()


def dice(output, y):
    p, t = shares(output, y)
    return ((2 * (p * t).sum(1) + 1) / (p.sum(1) + t.sum(1) + 1)).mean()


def overlap(output, y):
    p, t = shares(output, y)
    both = (p * t).sum()
    return (both + 1e-6) / (p.sum() + t.sum() - both + 1e-6)


def likelihood(output, y):
    return F.log_softmax(output, 1).gather(1, y[:, None]).mean()


def weighed(output, y):
    """A mean that is weighed by the output itself: small where the two agree."""
    p, t = shares(output, y)
    return ((p - t).abs() * p).sum() / (p.sum() + 1)


@pytest.mark.parametrize(
    ("loss", "expected"),
    [
        (dice, ["loss_sign"]),
        (overlap, ["loss_sign"]),
        (likelihood, ["loss_sign"]),
        (lambda output, y: 1 - dice(output, y), []),
        (lambda output, y: -overlap(output, y), []),
        (lambda output, y: -likelihood(output, y), []),
        (weighed, []),
    ],
)
def test_a_score_that_is_minimised_is_told(loss, expected):
    assert [rule for rule, _ in told(mlp(), loss=loss)] == expected


# A padding index that is a word


class Words(nn.Module):
    def __init__(self, padding):
        super().__init__()
        self.words, self.last = nn.Embedding(20, 16, padding_idx=padding), nn.Linear(16, 2)

    def forward(self, ids):
        return self.last(self.words(ids).sum(1))


def phrases(pads, left=False, size=48):
    """Rows of 3 to 8 words, filled up with `pads`; the answer is whether the word 1 is among them."""
    ids = torch.randint(2, 20, (size, 8))
    ids[torch.rand(size, 8) < 0.15] = 1
    length = torch.randint(3, 9, (size, 1))
    if pads is not None:
        ids[torch.arange(8).expand(size, 8) >= length] = pads
    y = (ids == 1).any(1).long()
    return (ids.flip(1) if left else ids), y


@pytest.mark.parametrize(
    ("padding", "data", "expected"),
    [
        (1, {"pads": 0}, [("input_padding", "words")]),
        (5, {"pads": 0}, [("input_padding", "words")]),
        (0, {"pads": 0}, []),
        (0, {"pads": 0, "left": True}, []),
        (None, {"pads": 0}, []),
        (0, {"pads": None}, []),  # it is never met
    ],
)
def test_a_padding_index_that_is_a_word_is_told(padding, data, expected):
    model = Words(padding)
    optimizer = torch.optim.Adam(model.parameters(), 1e-2)
    with hookline.watch(model) as watch:
        for _ in range(30):
            ids, y = phrases(**data)
            optimizer.zero_grad()
            F.cross_entropy(model(ids), y).backward()
            optimizer.step()
    found = [(one.rule, one.site) for one in hookline.diagnose(watch) if one.severity != "note"]
    assert found == expected


# Gains that begin with ones


class Conditional(nn.Module):
    """A norm whose gain is looked up: its rows are alike at the start, on purpose."""

    def __init__(self, fault):
        super().__init__()
        self.first, self.norm, self.last = nn.Linear(12, 32), nn.BatchNorm1d(32, affine=False), nn.Linear(32, 4)
        self.gain = nn.Embedding(3, 32)
        nn.init.ones_(self.gain.weight)
        if fault:
            nn.init.constant_(self.first.weight, 0.1)

    def forward(self, x):
        which = (x[:, 0] > 0).long() + (x[:, 1] > 0).long()
        return self.last(F.relu(self.norm(self.first(x)) * self.gain(which)))


@pytest.mark.parametrize(("fault", "expected"), [(True, [("symmetric", "first.weight")]), (False, [])])
def test_rows_that_are_looked_up_may_begin_alike_and_those_of_a_layer_may_not(fault, expected):
    assert told(Conditional(fault))[: len(expected) or None] == expected
