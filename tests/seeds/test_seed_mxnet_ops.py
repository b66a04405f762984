"""Seed 000, "Examine forward results with hooks", transposed to torch: the same eager and compiled.

A Dense layer is a Linear one, a hybridized net a compiled one.
"""

import pytest
import torch
from torch import nn

import hookline

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning:torch")  # torch's own


class Dense(nn.Module):
    """`nn.HybridSequential` with one `Dense(2)` in it; any dimensions after the first are one, as in MXNet."""

    def __init__(self):
        super().__init__()
        self.dense0 = nn.Linear(12, 2)

    def forward(self, x):
        return self.dense0(x.flatten(1))


@pytest.fixture(scope="module", params=["eager", "compiled"])
def model(request):
    torch.manual_seed(0)
    model = Dense()
    if request.param == "compiled":
        model = torch.compile(model, fullgraph=True)
        model(torch.ones(2, 3, 4))  # "after hybridization"
    return model


def test_a_pre_hook_prints_the_block_and_is_detached(model, capsys):
    def pre_hook(block, input) -> None:
        print(f"{block}")

    pre_handle = hookline.register_forward_pre_hook(model, pre_hook, "dense0")
    input = torch.ones(2, 3, 4)
    first = model(input)
    assert capsys.readouterr().out == "Linear(in_features=12, out_features=2, bias=True)\n"
    pre_handle.detach()
    assert torch.equal(model(input), first)
    assert capsys.readouterr().out == ""


def test_a_post_hook_prints_the_block(model, capsys):
    def post_hook(block, input, output) -> None:
        print(f"{block}")

    post_handle = hookline.register_forward_hook(model, post_hook, "dense0")
    model(torch.ones(2, 3, 4))
    assert capsys.readouterr().out == "Linear(in_features=12, out_features=2, bias=True)\n"
    post_handle.detach()


@pytest.mark.parametrize("monitor_all", [True, False])
def test_a_callback_monitors_the_operator(model, monitor_all, capsys):
    def mon_callback(node_name, opr_name, arr):
        print(f"{node_name}")
        print(f"{opr_name}")

    # FullyConnected is torch's addmm: bias, data, weight and output.
    handle = hookline.register_op_hook(model, mon_callback, monitor_all=monitor_all, ops="addmm")
    out = model(torch.ones(2, 3, 4))
    places = ("input0", "input1", "input2", "output") if monitor_all else ("output",)
    assert capsys.readouterr().out == "".join(f"dense0/addmm.{place}\naten.addmm\n" for place in places)
    assert out.shape == (2, 2)
    handle.detach()
    assert torch.equal(model(torch.ones(2, 3, 4)), out)
    assert capsys.readouterr().out == ""
