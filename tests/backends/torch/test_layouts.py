"""Tensors of every layout and kind are recorded as they are, and a site that can't be measured ends no other."""

import pytest
import torch
from torch import nn

from hookline import record, watch
from hookline.testing import untouched
from tests.support.models import Calls

pytestmark = [
    pytest.mark.filterwarnings("ignore:.*nested tensors:UserWarning"),
    pytest.mark.filterwarnings("ignore:Sparse:UserWarning"),
    pytest.mark.filterwarnings("ignore:torch.quantize_per_tensor:UserWarning"),
]


KINDS = {
    "sparse": lambda x: x.relu().to_sparse(),
    "not coalesced": lambda x: torch.sparse_coo_tensor([[0, 0]], x[[0, 0]], (3, x.shape[1])),
    "sparse rows": lambda x: x.to_sparse_csr(),
    "sparse blocks": lambda x: x.to_sparse_bsr((2, 2)),
    "nested": lambda x: torch.nested.nested_tensor([x, x[:2]]),
    "jagged": lambda x: torch.nested.nested_tensor([x, x[:2]], layout=torch.jagged),
    "quantized": lambda x: torch.quantize_per_tensor(x, 0.1, 0, torch.qint8),
    "mkldnn": lambda x: x.to_mkldnn(),
    "complex": lambda x: torch.complex(x, x),
    "conjugated": lambda x: torch.complex(x, x).conj(),
    "negated": lambda x: torch.complex(x, x).conj().imag,
    "8 bits": lambda x: x.to(torch.float8_e4m3fn),
    "expanded": lambda x: x[:1].expand(x.shape),
    "transposed": lambda x: x.t(),
    "zero without memory": lambda x: torch._efficientzerotensor(x.shape),
    "whole": lambda x: (x * 10).to(torch.uint16),
    "empty": lambda x: x[:0],
}
OPTIONS = [{}, {"dtype": torch.float64}, {"device": "cpu"}, {"reduce": lambda t: t}, {"limit": "1GB"}]
WITHOUT_STATISTICS = {"sparse", "not coalesced", "sparse rows", "sparse blocks", "nested", "jagged"}


def numbers(tensor):
    if tensor.is_nested:
        return torch.cat([part.flatten() for part in tensor.unbind()])
    if tensor.is_quantized:
        return tensor.dequantize()
    return (tensor if tensor.layout is torch.strided else tensor.to_dense()).to(torch.complex128)


@pytest.mark.parametrize("size", [4, 400])  # 400: large enough for the pool of buffers
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("options", OPTIONS, ids=lambda options: next(iter(options), "plain"))
def test_any_kind_of_tensor_is_recorded(kind, size, options):
    make, x = KINDS[kind], torch.randn(size, size)
    model = nn.Sequential(Calls(make))
    with record(model, **options) as rec:
        model(x)
    got, want = rec["0"].output, make(x)
    assert torch.equal(numbers(got).to(torch.complex128), numbers(want).to(torch.complex128))
    if set(options) <= {"reduce", "limit"}:
        assert got.layout is want.layout and got.dtype is want.dtype


@pytest.mark.parametrize("kind", KINDS)
def test_a_kind_without_statistics_is_told_and_ends_no_other(kind):
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.odd, self.fc = Calls(KINDS[kind]), nn.Linear(4, 4)

        def forward(self, x):
            self.odd(x.detach())
            return self.fc(x)

    model, x = Model(), torch.randn(4, 4)
    if kind in WITHOUT_STATISTICS:
        with pytest.warns(UserWarning, match="watching 'odd' .* failed and stops: Unsupported"), watch(model) as w:
            model(x)
    else:
        with watch(model) as w:
            model(x)
    assert bool(w.rows("odd")) == (kind not in WITHOUT_STATISTICS) and w.rows("fc", kind="output")


KEY = ("site", "kind", "step", "count", "zeros")


def test_a_sparse_gradient_counts_as_what_it_means():
    rows = []
    for sparse in (True, False):
        torch.manual_seed(0)
        model = nn.Sequential(nn.Embedding(10, 3, sparse=sparse), nn.Linear(3, 2))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        with watch(model) as w:
            for _ in range(2):
                optimizer.zero_grad()
                model(torch.tensor([1, 1, 2])).sum().backward()
                optimizer.step()
        rows.append([row for row in w.rows() if row["kind"] in ("param", "param_grad", "update")])
    assert len(rows[0]) == len(rows[1]) == 2 * 3 * 3
    for one, other in zip(*rows, strict=True):
        assert [one[k] for k in KEY] == [other[k] for k in KEY]
        assert one["l2"] == pytest.approx(
            other["l2"], rel=1e-6
        )  # a sparse step adds twice where a dense one adds once


def test_a_parameter_that_fails_is_told_and_ends_no_other():
    model = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 2))

    def train(w):
        w.steps_by_hand()
        for _ in range(3):
            model(torch.randn(4, 3)).sum().backward()
            gradients = {id(p): p.grad for p in model.parameters()}
            w.before_step({**gradients, id(model[0].weight): model[0].weight.grad.to_sparse()})
            w.after_step()

    with watch(model) as w, pytest.warns(UserWarning, match=r"watching parameter '0.weight' failed") as told:
        train(w)
    assert len(told) == 1
    assert {row["site"] for row in w.rows(kind="update", step=2)} == {"0.bias", "1.weight", "1.bias"}


def test_parameters_of_a_lazy_module_are_heard_from_their_first_call_on():
    model = nn.Sequential(nn.LazyLinear(3), nn.ReLU(), nn.LazyLinear(2, bias=False))
    with record(model, grads=True) as rec:
        model(torch.randn(4, 5)).sum().backward()
    assert {name: tuple(g.shape) for name, g in rec["0"].param_grads.items()} == {"weight": (3, 5), "bias": (3,)}
    for name, module in (("0", model[0]), ("2", model[2])):
        assert torch.equal(rec[name].param_grads["weight"], module.weight.grad)
    with untouched(model), record(model, grads=True):
        pass
    assert not any(p._backward_hooks for p in model.parameters())


def test_a_lazy_module_that_is_never_called_is_left_as_it_was():
    model = nn.LazyLinear(3)
    with record(model, grads=True) as rec:
        pass
    assert rec.audit()[""].fired == 0
    model(torch.ones(1, 2)).sum().backward()
    assert rec[""].param_grads == {}
