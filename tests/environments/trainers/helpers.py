"""What the tests of all trainers share: a small model, its data, and what must hold afterwards."""

import torch
from torch import nn

import hookline
from hookline.testing import untouched

VALIDATED_TWICE = [
    (0, "train", 8),
    (1, "train", 8),
    (2, "eval", 24),
    (2, "train", 8),
    (3, "train", 8),
    (4, "eval", 24),
]
"""(step, mode, values) of a layer's rows: two epochs of two batches, and three batches to validate after each."""


def small_model():
    """A fresh model, equal each time."""
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Dropout(0.1), nn.Linear(8, 1))


def data(batches, size=8):
    """(x, y) of that many batches, equal each time."""
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(batches * size, 4, generator=generator)
    return x, x.sum(1, keepdim=True) + 0.1


def steps_of(rows, kind="output", mode="train"):
    return sorted({row["step"] for row in rows if row["kind"] == kind and row["mode"] == mode})


def same_weights(one, other):
    return all(torch.equal(a, b) for a, b in zip(one.parameters(), other.parameters(), strict=True))


def assert_nothing_left(model):
    """No hook of hookline on the model, none of anybody's in torch's lists of optimizer hooks."""
    assert hookline.installed(model) == []
    from torch.optim import optimizer

    assert not optimizer._global_optimizer_pre_hooks
    assert not optimizer._global_optimizer_post_hooks


def as_found(model):
    """A block after which the model's hooks and attributes must be as before; parameters may have changed."""
    return untouched(model, parameters=False, rng=False)
