"""summary and trace with other layouts than strided, TorchScript parts, and random numbers of all kinds."""

import random
import warnings

import numpy as np
import pytest
import torch
from torch import nn

import hookline
from hookline.testing import untouched

pytestmark = pytest.mark.filterwarnings(
    "ignore:Sparse CSR tensor support",
    "ignore:Sparse BSR",
    "ignore:The PyTorch API of nested",
    "ignore:.*torch.jit",
)


class ToDense(nn.Module):
    def __init__(self):
        super().__init__()
        self.same, self.fc = nn.Identity(), nn.Linear(4, 3)

    def forward(self, x):
        x = self.same(x)
        return self.fc(x.dequantize() if x.is_quantized else x.to_dense())


class Graph(nn.Module):
    """A graph network: a sparse matrix as a buffer or a plain attribute."""

    def __init__(self, matrix, *, buffer):
        super().__init__()
        self.fc = nn.Linear(4, 3)
        if buffer:
            self.register_buffer("matrix", matrix)
        else:
            self.matrix = matrix

    def forward(self, x):
        return torch.sparse.mm(self.matrix, self.fc(x))


LAYOUTS = {
    "sparse_coo": lambda: torch.eye(4).to_sparse(),
    "sparse_csr": lambda: torch.eye(4).to_sparse_csr(),
    "sparse_csc": lambda: torch.eye(4).to_sparse_csc(),
    "sparse_bsr": lambda: torch.eye(4).to_sparse_bsr(2),
    "mkldnn": lambda: torch.eye(4).to_mkldnn(),
    "quantized": lambda: torch.quantize_per_tensor(torch.eye(4), 0.1, 0, torch.qint8),
}


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.filterwarnings("ignore:torch.quantize_per_tensor", "ignore:.*quantiz")
def test_inputs_of_every_layout(layout):
    model, x = ToDense(), LAYOUTS[layout]()
    with untouched(model):
        found, calls = hookline.summary(model, x), hookline.trace(model, x)
    assert found.total_macs == 4 * 4 * 3 and calls.names == ["same", "fc"]
    assert found.notes == [f"ran with real tensors: {layout} tensors have no fake ones"]
    assert "4x4" in str(found) and "same (Identity): 4x4 -> 4x4" in str(calls)


@pytest.mark.parametrize("buffer", [True, False])
@pytest.mark.parametrize("layout", ["sparse_coo", "sparse_csr"])
def test_matrices_that_a_model_holds(layout, buffer):
    model, x = Graph(LAYOUTS[layout](), buffer=buffer), torch.randn(4, 4)
    with untouched(model):
        found = hookline.summary(model, x)
    assert found.total_macs == 4 * 4 * 3  # that of `fc`; nobody knows what the sparse product costs
    assert list(found.unknown_ops) == ["aten._sparse_addmm.default"]


@pytest.mark.parametrize("layout", [torch.strided, torch.jagged])
def test_nested_inputs(layout):
    x = torch.nested.nested_tensor([torch.randn(2, 4), torch.randn(5, 4)], layout=layout)
    model = nn.Sequential(nn.Linear(4, 3), nn.ReLU())
    with untouched(model):
        found = hookline.summary(model, x)
    assert "2x?x4" in str(found) and "2x?x3" in str(found)
    assert "aten.linear.default" in found.unknown_ops
    assert found.activation_bytes == 2 * 7 * 3 * 4
    assert hookline.trace(model, x).names == ["0", "1"]


def test_torchscript_parts_run_and_are_told():
    class Mixed(nn.Module):
        def __init__(self):
            super().__init__()
            self.scripted = torch.jit.script(nn.Sequential(nn.Linear(4, 4), nn.ReLU()))
            self.traced = torch.jit.trace(nn.Sequential(nn.Linear(4, 4)), torch.randn(2, 4))
            self.fc = nn.Linear(4, 3)

        def forward(self, x):
            return self.fc(self.traced(self.scripted(x)))

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        model = Mixed()
    x = torch.randn(2, 4)
    found = hookline.summary(model, x)
    assert found.total_macs == 2 * 4 * (4 + 4 + 3)
    assert found.notes == ["ran with real tensors: a ScriptModule does not run on fake ones"]
    notes = {row["name"]: row["note"] for row in found.rows}
    assert notes["scripted.0"] == notes["traced.0"] == "inside TorchScript" and notes["fc"] == ""
    assert hookline.trace(model, x).names == ["scripted", "traced", "fc"]
    assert hookline.summary(model).total_params == 55


def test_grouped_products_cost_what_their_parts_cost():
    class Experts(nn.Module):
        def forward(self, x, weights, ends):
            return torch._grouped_mm(x, weights, offs=ends)

    x, weights = torch.randn(16, 8).bfloat16(), torch.randn(2, 8, 24).bfloat16()
    ends = torch.tensor([8, 16], dtype=torch.int32)
    assert hookline.summary(Experts(), x, weights, ends).total_macs == 2 * (8 * 8 * 24)
    columns = (
        torch.randn(2, 16, 8).bfloat16(),
        torch.randn(8, 32).bfloat16(),
        torch.tensor([8, 32], dtype=torch.int32),
    )
    assert hookline.summary(Experts(), *columns).total_macs == 16 * 8 * 8 + 16 * 8 * 24


class Draws(nn.Module):
    def __init__(self, draw):
        super().__init__()
        self.draw, self.fc = draw, nn.Linear(4, 4)
        self.own = torch.Generator().manual_seed(0)
        self.old, self.new, self.python = np.random.RandomState(0), np.random.default_rng(0), random.Random(0)

    def forward(self, x):
        return self.fc(x * self.draw(self))


DRAWS = {
    "torch": lambda self: torch.rand(()),
    "a number of torch": lambda self: torch.rand(()).item(),
    "a generator of torch": lambda self: torch.rand((), generator=self.own).item(),
    "seed": lambda self: float(torch.manual_seed(3).initial_seed()),
    "numpy": lambda self: float(np.random.rand()),
    "numpy's old generator": lambda self: float(self.old.rand()),
    "numpy's generator": lambda self: float(self.new.random()),
    "python": lambda self: random.random(),
    "python's generator": lambda self: self.python.random(),
    "it fails": lambda self: torch.rand(3) * np.random.rand() * random.random(),
}


@pytest.mark.parametrize("verb", [hookline.summary, hookline.trace])
@pytest.mark.parametrize("real", [False, True])
@pytest.mark.parametrize("draw", DRAWS)
def test_random_numbers_go_on_as_if_nothing_had_run(draw, real, verb):
    model = Draws(DRAWS[draw])

    def state():
        return (
            torch.get_rng_state().tolist(),
            model.own.get_state().tolist(),
            repr([np.random.get_state(), model.old.get_state(), model.new.bit_generator.state]),
            random.getstate(),
            model.python.getstate(),
        )

    before = state()
    if draw == "it fails":
        with pytest.raises(hookline.errors.ForwardError):
            verb(model, torch.ones(2, 4), real=real)
    else:
        verb(model, torch.ones(2, 4), real=real)
    assert state() == before
