"""What the tests of all trainers share: a small model, its data, and what must hold afterwards."""

import numpy as np
import torch
from torch import nn

import hookline
from hookline.testing import untouched


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


def same_rows(a, b):
    """Whether two lists of rows say the same: histograms element by element, NaN equal to itself."""
    return len(a) == len(b) and all(
        one.keys() == other.keys() and all(_same(one[name], other[name]) for name in one)
        for one, other in zip(a, b, strict=True)
    )


def _same(a, b):
    if isinstance(a, np.ndarray):
        return np.array_equal(a, b)
    return a == b or (a != a and b != b)
