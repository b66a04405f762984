"""What broke when others tried it: outputs that depend on each other, and views that leave a graph (G5, G13)."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import hookline
from tests.support.compare import tensors


class Part(nn.Module):
    """Some outputs of x, of which `out` makes h = 2 x first."""

    def __init__(self, out):
        super().__init__()
        self.out = out

    def forward(self, x):
        return self.out(self, x, x * 2)


def keeping(part, x, h):
    part.kept = h
    return h


COLUMN = torch.tensor([[[[1.0, 0.0], [1.0, 0.0]]]])
CASES = {
    "(h, h + 1)": (lambda part, x, h: (h, h + 1), (3, 5), 16),
    "hidden states": (lambda part, x, h: {"hidden": h, "last": h + 1}, (3, 5), 16),
    "(h, h[..., :1])": (lambda part, x, h: (h, h[..., :1]), (3, 5), 6 + 10 * COLUMN),
    "(h, pool(h))": (lambda part, x, h: (h, F.avg_pool2d(h, 2)), (3, 5), 8.5),
    "(h, h)": (lambda part, x, h: (h, h), (3, 5), 16),
    "h, also kept": (keeping, (3,), 16),
    "(x * 2, x)": (lambda part, x, h: (h, x), (3, 5), 11),
}
"""Outputs, their gradients, and that of the input."""


class Around(nn.Module):
    """3 times the first output, 5 times the second or what is kept."""

    def __init__(self, out):
        super().__init__()
        self.part = Part(out)

    def forward(self, x):
        out = self.part(x * 1)
        out = list(out.values()) if isinstance(out, dict) else list(out) if isinstance(out, tuple) else [out]
        if hasattr(self.part, "kept"):
            out.append(self.part.__dict__.pop("kept"))  # a module that keeps its graph would live on with it
        return 3 * out[0].sum() + 5 * out[1].sum()


def by_record(m, run):
    with hookline.record(m, grads=True) as r:
        run()
    (call,) = r["part"].calls
    return call.grad_output, call.grad_input


def by_backward_hook(m, run):
    seen = []
    with hookline.register_backward_hook(m, lambda mod, gi, go: seen.append((go, gi)), "part"):
        run()
    ((out, given),) = seen
    return out, given


def by_pre_hook(m, run):
    seen = []
    with hookline.register_backward_pre_hook(m, lambda mod, go: seen.append(go), "part"):
        run()
    return (*seen, None)


def by_edit(m, run):
    out, given = [], []
    edits = {"part:grad_output": lambda g: out.append(g) or g, "part:grad_input": lambda g: given.append(g) or g}
    with hookline.edit(m, edits):
        run()
    assert len(out) == len(given) == 1
    return out[0], given[0]


@pytest.fixture(params=[False, True], ids=["eager", "compiled"])
def ran(request):
    """What runs a model: itself, or what torch makes of it."""
    if not request.param:
        return lambda m: m
    request.getfixturevalue("fresh_compiler")
    return lambda m: torch.compile(m, backend="aot_eager")


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("way", [by_record, by_backward_hook, by_pre_hook, by_edit], ids=lambda way: way.__name__)
@pytest.mark.parametrize("case", CASES)
def test_g5_a_gradient_is_that_of_what_leaves(case, way, ran):
    out, wanted_out, wanted_in = CASES[case]
    m, x = Around(out), torch.ones(1, 1, 2, 2, requires_grad=True)
    called = ran(m)
    grads, given = way(m, lambda: called(x).backward())
    assert [set(grad.flatten().tolist()) for grad in tensors(grads)] == [{number} for number in wanted_out]
    if given is not None:
        assert torch.equal(given[0], wanted_in * torch.ones(1, 1, 2, 2))


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("inputs", [True, False], ids=["inputs", "outputs alone"])
@pytest.mark.parametrize("case", CASES)
def test_g5_a_watch_counts_what_leaves(case, inputs, ran):
    out, wanted_out, wanted_in = CASES[case]
    m, x = Around(out), torch.ones(1, 1, 2, 2, requires_grad=True)
    called = ran(m)
    with hookline.watch(m, inputs=inputs) as w:
        called(x).backward()
    shapes = [tensor.numel() for tensor in tensors(m.part(x))]
    values = torch.cat([torch.full((n,), float(number)) for n, number in zip(shapes, wanted_out, strict=True)])
    (row,) = w.rows("part", kind="grad_output")
    assert (row["count"], row["mean"]) == (values.numel(), pytest.approx(values.mean().item()))
    if inputs:
        (row,) = w.rows("part", kind="grad_input")
        assert (row["count"], row["mean"]) == (
            4,
            pytest.approx((wanted_in * torch.ones(1, 1, 2, 2)).mean().item()),
        )


VIEWS = {
    "(x.view(-1), x.t())": (lambda part, x, h: (x.view(-1), x.t()), 8.0),
    "(x + 1, x[:, :1])": (lambda part, x, h: (x + 1, x[:, :1]), torch.tensor([[8.0, 3.0], [8.0, 3.0]])),
    "(h, h[:, :1])": (lambda part, x, h: (h, h[:, :1]), torch.tensor([[16.0, 6.0], [16.0, 6.0]])),
}


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.usefixtures("fresh_compiler")
@pytest.mark.parametrize("root", [True, False], ids=["the model", "its part"])
@pytest.mark.parametrize("case", VIEWS)
def test_g13_outputs_of_a_graph_that_are_views_of_its_input(case, root):
    out, wanted = VIEWS[case]
    part, x = Part(out), torch.ones(2, 2, requires_grad=True)
    m = part if root else nn.Sequential(part)
    with hookline.record(m, grads=True) as r:
        a, b = torch.compile(m, backend="aot_eager")(x)
        (3 * a.sum() + 5 * b.sum()).backward()
    call = r["" if root else "0"]
    assert [set(g.flatten().tolist()) for g in call.grad_output] == [{3}, {5}]
    assert torch.equal(call.grad_input[0], wanted * torch.ones(2, 2))


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.usefixtures("fresh_compiler")
def test_g13_a_backward_hook_on_a_compiled_identity():
    m, seen = nn.Identity(), []
    with hookline.register_backward_hook(m, lambda mod, gi, go: seen.append((gi[0].tolist(), go[0].tolist()))):
        (torch.compile(m, backend="aot_eager")(torch.ones(2, requires_grad=True)) * 3).sum().backward()
    assert seen == [([3, 3], [3, 3])]
