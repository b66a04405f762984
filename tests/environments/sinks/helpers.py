"""Rows with everything that a tracker may stumble over."""

import math

import torch
from torch import nn

from tests.support.rows import row

ODD = "a'; DROP é\n<b>/../x"
SITES = ("", "fc", "encoder.0.attn", ODD)
STEPS = (0, 5, 3, 3, 9)
"""Out of order, and one twice."""


def rows_of(step):
    """A step: plain numbers, NaN only, an Inf among others, an update with its ratio, a second call in eval."""
    plain = [row(site, step, values=[0.25 * (step + 1), -3.0, 0.0, 1e-30, 2e30]) for site in SITES]
    return [
        *plain,
        row("broken", step, values=[math.nan, math.nan]),
        row("half", step, values=[math.inf, 1.0, 2.0]),
        row("fc.weight", step, "update", [0.1, 0.2], ratio=0.5),
        row("fc", step, values=[7.0, 8.0], call=1, mode="eval"),
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


def number(value):
    """A number of JSON, which has no words for some of them."""
    return {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}.get(value, value)
