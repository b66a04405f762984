"""Runs that part at a step, and diffs that take their time: for the tests of the page."""

import threading
import time
from contextlib import contextmanager

import numpy as np
import torch

import hookline
from hookline.page import comparing
from tests.support.pages import store
from tests.support.rows import row


def run(folder, since=None, names=("enc.fc", "enc.act", "head"), steps=10, **meta):
    """A run without a model; from the step `since` on, the second of its sites has other values."""
    random = np.random.default_rng(0)
    rows = []
    for step in range(steps):
        for at, name in enumerate(names):
            values = random.standard_normal(50)
            other = since is not None and step >= since and at == 1
            rows.append(row(name, step, values=values * 1.5 if other else values))
    return store(folder, rows, [("", "Net"), *((name, "Linear") for name in names)], **meta)


def recorded(folder, scale=1.0, steps=(1, 3)):
    """A watched model, of which some steps are recorded; the second layer may give more."""
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 2))
    with torch.no_grad(), hookline.watch(model, to=folder, progress=False) as watching:
        model[2].weight.mul_(scale)
        for step in range(5):
            x = torch.full((3, 4), float(step))
            if step in steps:
                with hookline.record(model, to=watching):
                    model(x)
            else:
                model(x)


@contextmanager
def stuck(monkeypatch):
    """Has every diff wait, saying that it is half done, until the event is set."""
    go, diff_runs = threading.Event(), comparing.diff_runs

    def slow(one, two, *, tell):
        while not go.wait(0.01):
            tell(0.5)
        return diff_runs(one, two, tell=tell)

    monkeypatch.setattr(comparing, "diff_runs", slow)
    try:
        yield go
    finally:
        go.set()


def until_found(client, a, b, **more):
    """The answer of a diff, asked for as the page does."""
    of = None
    for _ in range(400):
        status, answer = client.ask("diff", a=a, b=b, of=of, **more)
        if status != 200 or answer["state"] != "working":
            return status, answer
        of = answer["of"]
        time.sleep(0.02)
    raise AssertionError("the diff does not end")
