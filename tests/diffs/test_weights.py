"""Weights from one model to another by a neutral file: names, layouts, ties, and what does not fit."""

import json

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from hookline.backends import named
from hookline.backends.neutral import ATTENTION, flat, last_first, line, turned
from hookline.diffs.weights import FIELD, load_weights, save_weights
from hookline.errors import InvalidArgument, RunError
from hookline.recording.seals import header_of


class Block(nn.Module):
    def __init__(self, width, names=("norm", "attn", "up", "down")):
        super().__init__()
        self._own = names
        for name, part in zip(names, self.parts(width), strict=True):
            setattr(self, name, part)

    def parts(self, width):
        attention = nn.MultiheadAttention(width, 2, batch_first=True)
        return nn.LayerNorm(width), attention, nn.Linear(width, 2 * width), nn.Linear(2 * width, width, bias=False)

    def forward(self, x):
        norm, attention, up, down = (getattr(self, name) for name in self._own)
        x = norm(x)
        return x + down(up(attention(x, x, x)[0]).relu())


class Net(nn.Module):
    def __init__(self, list_name="blocks", names=("norm", "attn", "up", "down"), tied=True):
        super().__init__()
        self._list = list_name
        self.embed = nn.Embedding(7, 8)
        setattr(self, list_name, nn.ModuleList(Block(8, names) for _ in range(12)))
        self.batch = nn.BatchNorm1d(8)
        self.head = nn.Linear(8, 7, bias=False)
        self.register_buffer("mask", torch.ones(3), persistent=False)
        if tied:
            self.head.weight = self.embed.weight

    def forward(self, ids):
        x = self.embed(ids)
        for block in getattr(self, self._list):
            x = block(x)
        return self.head(self.batch(x.mean(1)))


@pytest.fixture
def source():
    torch.manual_seed(0)
    model = Net()
    for parameter in model.parameters():
        parameter.data.normal_()
    model(torch.randint(7, (4, 5)))  # running statistics of its own
    return model.eval()


@pytest.fixture
def ids():
    return torch.arange(10).reshape(2, 5) % 7


def test_weights_go_to_a_model_of_the_same_names(source, ids, tmp_path):
    path = save_weights(source, tmp_path / "w.safetensors")
    target = Net().eval()
    kept = {name: id(parameter) for name, parameter in target.named_parameters()}
    loaded = load_weights(target, path)
    assert torch.equal(target(ids), source(ids))
    assert (
        not loaded.unplaced and not loaded.unfilled and loaded.placed["batch.running_var"] == "batch.running_var"
    )
    assert {name: id(parameter) for name, parameter in target.named_parameters()} == kept
    assert all(parameter.requires_grad and parameter.grad is None for parameter in target.parameters())
    assert not any("num_batches" in name or "mask" in name for name in loaded.placed)


def test_weights_go_to_a_model_of_other_names_by_type_shape_and_order(source, ids, tmp_path):
    path = save_weights(source, tmp_path / "w.safetensors")
    target = Net("layers", ("ln", "attention", "fc_in", "fc_out")).eval()
    loaded = load_weights(target, path)
    assert torch.equal(target(ids), source(ids))
    assert loaded.placed["blocks.11.attn.q_proj.weight"] == "layers.11.attention.q_proj.weight"


def test_wrappers_are_no_obstacle(source, ids, tmp_path):
    path = save_weights(nn.DataParallel(source), tmp_path / "w.safetensors")
    target = Net().eval()
    load_weights(target, path)
    assert torch.equal(target(ids), source(ids))


def test_ties_are_kept_and_undone(source, ids, tmp_path):
    path = save_weights(source, tmp_path / "w.safetensors")
    told = json.loads(header_of(path)["__metadata__"][FIELD])
    assert (
        told["tied"] == {"head.weight": "embed.weight"}
        and told["framework"] == "torch"
        and "out, in" in told["layout"]
    )
    assert told["weights"]["embed.weight"] == {"type": "Embedding"}
    target = Net(tied=False).eval()
    load_weights(target, path)
    assert torch.equal(target(ids), source(ids)) and target.head.weight is not target.embed.weight


def test_numbers_that_a_tied_weight_cannot_have_both_are_refused(source, tmp_path):
    untied = Net(tied=False)
    path = save_weights(untied, tmp_path / "w.safetensors")
    before = {name: tensor.clone() for name, tensor in source.state_dict().items()}
    with pytest.raises(InvalidArgument, match=r"head\.weight is tied in the model"):
        load_weights(source, path)
    assert all(torch.equal(tensor, before[name]) for name, tensor in source.state_dict().items())


def test_what_does_not_fit_is_listed_and_nothing_is_written(tmp_path):
    a = nn.ModuleDict({"one": nn.Linear(2, 3), "two": nn.Linear(3, 4), "gone": nn.Conv2d(1, 1, 3)})
    b = nn.ModuleDict({"one": nn.Linear(2, 3), "two": nn.Linear(3, 5), "new": nn.Embedding(3, 3)})
    path = save_weights(a, tmp_path / "w.safetensors")
    before = {name: tensor.clone() for name, tensor in b.state_dict().items()}
    with pytest.raises(InvalidArgument) as error:
        load_weights(b, path)
    for said in (
        "expected (5, 3) for two.weight, got (4, 3)",
        "not placed: gone.weight, gone.bias",
        "not filled: new.weight",
    ):
        assert said in str(error.value)
    assert all(torch.equal(tensor, before[name]) for name, tensor in b.state_dict().items())
    loaded = load_weights(b, path, strict=False)
    assert set(loaded.placed) == {"one.weight", "one.bias"} and set(loaded.misfits) == {"two.weight", "two.bias"}
    assert loaded.unplaced == ["gone.weight", "gone.bias"] and loaded.unfilled == ["new.weight"]
    assert torch.equal(b["one"].weight, a["one"].weight) and torch.equal(b["two"].weight, before["two.weight"])


def test_a_map_says_what_belongs_together(tmp_path):
    a = nn.ModuleDict({"x": nn.Linear(3, 3), "y": nn.Linear(3, 3)})
    b = nn.ModuleDict({"p": nn.Linear(3, 3), "q": nn.Linear(3, 3)})
    path = save_weights(a, tmp_path / "w.safetensors")
    load_weights(b, path, map={"x": "q", "y": "p"})
    assert torch.equal(b["q"].weight, a["x"].weight) and torch.equal(b["p"].bias, a["y"].bias)
    load_weights(b, path, map={"x.weight": "p.weight", "x.bias": "p.bias"})
    assert torch.equal(b["p"].weight, a["x"].weight) and torch.equal(b["q"].weight, a["y"].weight)
    outer = nn.ModuleDict({"net": nn.ModuleDict({"x": nn.Linear(3, 3), "y": nn.Linear(3, 3)})})
    load_weights(outer, path, map={"": "net"})
    assert torch.equal(outer["net"]["y"].weight, a["y"].weight)
    with pytest.raises(InvalidArgument, match="the map names nothing"):
        load_weights(b, path, map={"z": "p"})


class Mine(nn.Module):
    """A dense layer of one's own, with its weight the other way around."""

    def __init__(self):
        super().__init__()
        self.kernel, self.bias = nn.Parameter(torch.randn(2, 3)), nn.Parameter(torch.randn(3))

    def forward(self, x):
        return x @ self.kernel + self.bias


def test_a_map_says_the_layout_of_a_weight_that_nobody_knows(tmp_path):
    a, b, x = nn.Linear(2, 3), Mine(), torch.randn(4, 2)
    path = save_weights(a, tmp_path / "w.safetensors")
    load_weights(b, path, map={"weight": {"to": "kernel", "layout": "transposed"}})
    assert torch.allclose(b(x), a(x))


def test_dense_layers_of_transformers_have_their_weights_the_other_way_around(tmp_path):
    from transformers.pytorch_utils import Conv1D

    a, x = Conv1D(3, 2), torch.randn(4, 2)
    nn.init.normal_(a.bias)
    path = save_weights(a, tmp_path / "w.safetensors")
    b = nn.Linear(2, 3)
    load_weights(b, path)
    assert torch.allclose(b(x), a(x))
    again = Conv1D(3, 2)
    load_weights(again, path)
    assert torch.equal(again(x), a(x))


def test_any_safetensors_file_will_do(source, ids, tmp_path):
    state = {name: tensor.clone() for name, tensor in source.state_dict().items() if "num_batches" not in name}
    save_file(
        {name: tensor for name, tensor in state.items() if "in_proj" not in name}, tmp_path / "w.safetensors"
    )
    target = Net().eval()
    loaded = load_weights(target, tmp_path / "w.safetensors", strict=False)
    assert all("_proj" in name for name in loaded.unfilled) and not loaded.unplaced
    assert torch.equal(target.blocks[11].up.weight, source.blocks[11].up.weight)


def test_a_file_without_an_order_is_not_paired_by_one(tmp_path):
    """safetensors sorts names: what is alike would be exchanged, and nothing would tell."""
    sizes = {"q": (4, 4), "k": (4, 4), "fc": (4, 2), "norm": None}
    made = {n: nn.LayerNorm(4) if size is None else nn.Linear(*size) for n, size in sizes.items()}
    a = nn.ModuleDict(made)
    save_file(a.state_dict(), tmp_path / "plain.safetensors")
    b = nn.ModuleDict({f"my_{name}": nn.LayerNorm(4) if s is None else nn.Linear(*s) for name, s in sizes.items()})
    loaded = load_weights(b, tmp_path / "plain.safetensors", strict=False)
    assert {one: other for one, other in loaded.placed.items() if one.endswith("weight")} == {
        "fc.weight": "my_fc.weight",
        "norm.weight": "my_norm.weight",
    }
    assert loaded.unplaced == ["k.bias", "k.weight", "q.bias", "q.weight"]
    load_weights(b, tmp_path / "plain.safetensors", map={"*": "my_*"})
    assert torch.equal(b["my_q"].weight, a["q"].weight)
    load_weights(b, save_weights(a, tmp_path / "ordered.safetensors"))
    assert torch.equal(b["my_k"].weight, a["k"].weight)


def test_half_precision_is_carried(tmp_path):
    a = nn.Linear(3, 3).to(torch.bfloat16)
    path = save_weights(a, tmp_path / "w.safetensors")
    b = nn.Linear(3, 3).to(torch.bfloat16)
    load_weights(b, path)
    assert torch.equal(a.weight, b.weight) and b.weight.dtype is torch.bfloat16
    c = nn.Linear(3, 3)
    load_weights(c, path)
    assert torch.equal(c.weight, a.weight.float())


def test_files_that_are_none(tmp_path):
    (tmp_path / "text").write_text("no weights at all")
    for path in (tmp_path / "text", tmp_path / "missing"):
        with pytest.raises(RunError, match=r"is no file of weights|not a safetensors"):
            load_weights(nn.Linear(2, 2), path)
    newer = {"version": 99}
    named("numpy").write_safetensors(tmp_path / "new", {"a": np.zeros(2)}, {FIELD: json.dumps(newer)})
    with pytest.raises(RunError, match="newer hookline"):
        load_weights(nn.Linear(2, 2), tmp_path / "new")
    path = save_weights(nn.Linear(2, 2), tmp_path / "w.safetensors")
    damaged = bytearray(path.read_bytes())
    damaged[-1] ^= 1
    path.write_bytes(damaged)
    with pytest.raises(RunError, match="damaged"):
        load_weights(nn.Linear(2, 2), path)


@pytest.mark.parametrize(
    ("view", "shape", "wanted"),
    [
        (last_first, (3, 5, 2, 4), (4, 2, 3, 5)),
        (last_first, (2, 4), (4, 2)),
        (turned, (3, 5, 2, 4), (2, 4, 3, 5)),
        (flat(1), (8, 2, 3), (6, 8)),
        (flat(2), (2, 3, 8), (8, 6)),
        (line, (2, 3), (6,)),
        *[(form.view, (6, 2), (2, 2)) for form in ATTENTION["in_proj_weight"]],
    ],
)
def test_what_is_written_to_a_view_is_in_the_weight(view, shape, wanted):
    weight = np.zeros(shape)
    found = view(weight)
    assert found.shape == wanted and np.shares_memory(found, weight)
    found[...] = np.arange(found.size).reshape(found.shape)
    assert np.array_equal(view(weight), np.arange(found.size).reshape(found.shape))
