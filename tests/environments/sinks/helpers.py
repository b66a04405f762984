"""Rows with everything that a tracker may stumble over."""

import math

import numpy as np
import torch
from torch import nn

from hookline.lines import Stats

ODD = "a'; DROP é\n<b>/../x"
SITES = ("", "fc", "encoder.0.attn", ODD)
STEPS = (0, 5, 3, 3, 9)
"""Out of order, and one twice."""


def row(site, step, values, kind="output", **more):
    base = {"site": site, "kind": kind, "step": step, "call": 0, "rank": 0, "mode": "train"}
    return {**base, **Stats.of(np.asarray(values)).row(), **more}


def rows_of(step):
    """A step: plain numbers, NaN only, an Inf among others, an update with its ratio, a second call in eval."""
    plain = [row(site, step, [0.25 * (step + 1), -3.0, 0.0, 1e-30, 2e30]) for site in SITES]
    return [
        *plain,
        row("broken", step, [math.nan, math.nan]),
        row("half", step, [math.inf, 1.0, 2.0]),
        row("fc.weight", step, [0.1, 0.2], kind="update", ratio=0.5),
        {**row("fc", step, [7.0, 8.0]), "call": 1, "mode": "eval"},
    ]


def written(sink):
    """What the sink got, after it was closed."""
    sink.open({"model": "Net", "rank": 0, "sites": [["", "Net"]]})
    for step in STEPS:
        sink.write(rows_of(step))
    sink.close()
    return [one for step in STEPS for one in rows_of(step)]


def trained(to, steps=3):
    """The Watch of a small training run that wrote to `to`."""
    import hookline

    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with hookline.watch(model, to=to) as w:
        for _ in range(steps):
            optimizer.zero_grad()
            model(torch.randn(8, 3)).square().mean().backward()
            optimizer.step()
    return w


def same(a, b):
    return a == b or (math.isnan(a) and math.isnan(b))
