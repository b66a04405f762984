"""Right numbers: ten known architectures, single layers by hand, and columns that add up, always."""

import inspect

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import hookline
from hookline import summary
from hookline.backends.torch.fakes import costs
from hookline.summaries.columns import COLUMNS, lines_of
from hookline.summaries.tree import Cost
from hookline.testing import ZOO, untouched
from hookline.trees import leaves
from tests.support import architectures
from tests.support.models import Calls

TOTALS = {
    "params": "total_params",
    "trainable_params": "trainable_params",
    "param_bytes": "param_bytes",
    "macs": "total_macs",
    "activation_bytes": "activation_bytes",
}


def assert_adds_up(found):
    """Over rows as data, and over the lines of the printed table that are not subtotals."""
    for shown in (found, *(hookline.Summary(found.root, found.facts, depth, None) for depth in (0, 1, 2))):
        data = shown.to_dict()
        for column, total in TOTALS.items():
            values = [row[column] for row in data["rows"]]
            assert sum(value or 0 for value in values) == (data[total] or 0), column
        lines = [line for line in lines_of(shown.root, tuple(COLUMNS)) if not line.subtotal]
        added = Cost()
        for line in lines:
            added += line.cost
        assert added == shown.root.whole
    assert data["total_params"] == found.total_params


@pytest.mark.parametrize("build", architectures.ALL, ids=lambda build: build.__name__)
def test_known_architectures(build):
    model, inputs, params, macs = architectures.on_meta(build)
    found = summary(model, *inputs)
    assert found.total_params == params
    assert found.total_macs == macs
    assert found.unknown_ops == {}
    assert found.notes == []
    assert_adds_up(found)


@pytest.mark.parametrize("build", [architectures.unet, architectures.lstm, architectures.encoder])
@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("grad", [True, False])
def test_real_and_fake_runs_agree(build, training, grad):
    """Also on the fused paths: torch runs the encoder as one kernel where nothing needs a gradient."""
    model, inputs, params, macs = build()
    model.train(training).requires_grad_(grad)
    for real in (False, True):
        with untouched(model):
            found = summary(model, *inputs, real=real)
        assert (found.total_params, found.total_macs, found.unknown_ops) == (params, macs, {})
        assert found.trainable_params == (params if grad else 0)


E, H = 16, 4
LAYERS = {
    "linear over middle dimensions": (nn.Linear(5, 7), [(2, 3, 4, 5)], 24 * 35),
    "linear of one vector": (nn.Linear(5, 7), [(5,)], 35),
    "conv1d": (nn.Conv1d(4, 6, 3), [(2, 4, 10)], 2 * 8 * 6 * 4 * 3),
    "conv3d": (nn.Conv3d(2, 3, 3), [(1, 2, 5, 5, 5)], 27 * 27 * 2 * 3),
    "conv with groups": (nn.Conv2d(8, 12, 3, groups=4), [(1, 8, 6, 6)], 16 * 9 * 12 * 2),
    "depthwise conv": (nn.Conv2d(8, 8, 3, groups=8, padding=1), [(2, 8, 6, 6)], 2 * 36 * 9 * 8),
    "dilated, strided conv": (nn.Conv2d(3, 4, 3, stride=2, dilation=2), [(1, 3, 9, 9)], 9 * 9 * 12),
    "transposed conv": (nn.ConvTranspose2d(6, 4, 3, stride=2), [(2, 6, 5, 5)], 2 * 25 * 9 * 24),
    "transposed conv with groups": (nn.ConvTranspose2d(6, 4, 3, groups=2), [(1, 6, 5, 5)], 25 * 9 * 12),
    "embedding": (nn.Embedding(10, E), [(2, 3)], 0),
    "bilinear": (nn.Bilinear(3, 4, 5), [(2, 3), (2, 4)], 2 * 5 * (3 * 4 + 4)),
    "gru": (nn.GRU(5, 6), [(7, 2, 5)], 14 * 3 * 6 * 11),
    "rnn, batch first": (nn.RNN(5, 6, batch_first=True), [(2, 7, 5)], 14 * 6 * 11),
    "lstm cell": (nn.LSTMCell(5, 6), [(2, 5)], 2 * 4 * 6 * 11),
    "lstm with projection": (nn.LSTM(5, 6, proj_size=3), [(7, 2, 5)], 14 * (4 * 6 * (5 + 3) + 6 * 3)),
    "sdpa": (
        Calls(F.scaled_dot_product_attention),
        [(2, H, 9, E), (2, H, 11, E), (2, H, 11, 8)],
        2 * H * 99 * (E + 8),
    ),
    "sdpa, causal": (
        Calls(lambda q: F.scaled_dot_product_attention(q, q, q, is_causal=True)),
        [(2, H, 9, E)],
        2 * H * 81 * 2 * E,
    ),
    "sdpa, grouped queries": (
        Calls(lambda q, k: F.scaled_dot_product_attention(q, k, k, enable_gqa=True)),
        [(2, H, 9, E), (2, 2, 9, E)],
        2 * H * 81 * 2 * E,
    ),
    "einsum": (Calls(lambda a, b: torch.einsum("bik,bkj->bij", a, b)), [(2, 3, 4), (2, 4, 5)], 2 * 60),
    "matmul of vectors": (Calls(torch.matmul), [(7,), (7,)], 7),
    "matrix and vector": (Calls(torch.mv), [(3, 7), (7,)], 21),
    "addmv": (Calls(torch.addmv), [(3,), (3, 7), (7,)], 21),
    "addbmm": (Calls(torch.addbmm), [(3, 5), (2, 3, 4), (2, 4, 5)], 2 * 60),
    "int8 product": (
        Calls(lambda a, b: torch._int_mm(a.to(torch.int8), b.to(torch.int8))),
        [(17, 8), (8, 16)],
        17 * 128,
    ),
    "elementwise": (nn.Sequential(nn.BatchNorm1d(4), nn.GELU(), nn.Softmax(-1), nn.Dropout()), [(3, 4)], 0),
    "under inference_mode": (torch.inference_mode()(nn.Linear(5, 7).forward), [(3, 5)], 3 * 35),
}


@pytest.mark.filterwarnings("ignore:LSTM with projections")  # torch tells which kernel it takes
@pytest.mark.parametrize("real", [False, True])
@pytest.mark.parametrize("name", LAYERS)
def test_layers_by_hand(name, real):
    layer, shapes, macs = LAYERS[name]
    model = layer if isinstance(layer, nn.Module) else Calls(layer)
    found = summary(model, *shapes, real=real)
    assert found.total_macs == macs
    assert found.unknown_ops == {}
    assert found.notes in (
        [],
        ["the shapes were taken for int64, since the model looks them up in a table; dtype= says which"],
    )


@pytest.mark.parametrize("batch_first", [True, False])
@pytest.mark.parametrize("need_weights", [True, False])
@pytest.mark.parametrize("grad", [True, False])
def test_attention_counts_on_every_path(batch_first, need_weights, grad):
    batch, tokens = (2, 5) if batch_first else (5, 2)
    model = nn.MultiheadAttention(E, 2, batch_first=batch_first).eval().requires_grad_(grad)
    x = torch.randn(2, 5, E)
    found = summary(model, x, x, x, need_weights=need_weights)
    assert found.total_macs == batch * (4 * tokens * E * E + 2 * tokens * tokens * E)
    assert found.unknown_ops == {}


def test_experts_in_one_grouped_product():
    """Mixture-of-experts layers: each row goes to one expert, whichever that is."""
    experts = Calls(lambda x, w, ends: torch._grouped_mm(x, w, offs=ends))
    x, w = torch.randn(12, 16, dtype=torch.bfloat16), torch.randn(3, 16, 8, dtype=torch.bfloat16)
    found = summary(experts, x, w, torch.tensor([4, 6, 12], dtype=torch.int32))
    assert (found.total_macs, found.unknown_ops) == (12 * 16 * 8, {})


def test_the_fused_kernels_have_formulas():
    """summary's taps keep torch from its fused paths; a kernel called by hand is counted all the same."""
    layer = nn.TransformerEncoderLayer(E, 2, 32, batch_first=True).eval().requires_grad_(False)
    attention = layer.self_attn
    head = (
        E,
        2,
        attention.in_proj_weight,
        attention.in_proj_bias,
        attention.out_proj.weight,
        attention.out_proj.bias,
    )
    norms = [layer.norm1.weight, layer.norm1.bias, layer.norm2.weight, layer.norm2.bias]
    feed = [layer.linear1.weight, layer.linear1.bias, layer.linear2.weight, layer.linear2.bias]
    x = torch.randn(2, 5, E)
    whole = Calls(lambda x: torch._transformer_encoder_layer_fwd(x, *head, False, False, 1e-5, *norms, *feed))
    part = Calls(lambda x: torch._native_multi_head_attention(x, x, x, *head))
    assert summary(whole, x, real=True).total_macs == 2 * architectures.layer(5, E, 32)
    assert summary(part, x, real=True).total_macs == 2 * (4 * 5 * E * E + 2 * 25 * E)


def test_unknown_operations_are_listed():
    with torch.library._scoped_library("hookline_test", "DEF") as library:
        library.define("mystery(Tensor x) -> Tensor")
        library.impl("mystery", lambda x: x.clone(), "CompositeExplicitAutograd")
        model = nn.Sequential(Calls(torch.ops.hookline_test.mystery), Calls(torch.linalg.inv), nn.Linear(4, 4))
        found = summary(model, torch.eye(4))
    assert found.unknown_ops == {"hookline_test.mystery.default": 1, "aten.linalg_inv_ex.default": 1}
    assert found.total_macs == 64
    assert "Not counted" in found.to_text() and "hookline_test.mystery" in found.to_text()


class Inside(nn.Module):
    """Something of autograd or functorch inside a forward."""

    def __init__(self, fn):
        super().__init__()
        self.fc, self.fn = nn.Linear(3, 3), fn

    def forward(self, x):
        return self.fn(self.fc, x)


def own_gradient(fc, x):
    x = x.requires_grad_()
    return torch.autograd.grad(fc(x).sum(), x, create_graph=True)[0]


@pytest.mark.parametrize("real", [False, True])
@pytest.mark.parametrize(
    ("fn", "macs", "note"),
    [
        (lambda fc, x: torch.vmap(fc)(x), 4 * 9, ""),
        (lambda fc, x: torch.func.grad(lambda t: fc(t).sum())(x), 2 * 4 * 9, "torch.func allows no hooks"),
        (own_gradient, 2 * 4 * 9, ""),
    ],
    ids=["vmap", "torch.func.grad", "autograd.grad"],
)
def test_transforms_inside_a_forward(fn, macs, note, real):
    model = Inside(fn)
    with untouched(model):
        found = summary(model, (4, 3), real=real)
    assert (found.total_macs, found.unknown_ops) == (macs, {})
    assert note in " ".join(found.notes) and len(found.notes) == bool(note)


def test_what_hides_other_operations_is_listed():
    def either(fc, x):
        return torch.cond(torch.tensor(True), lambda x: fc(x), lambda x: fc(x) * 2, (x,))

    assert summary(Inside(either), (4, 3)).unknown_ops == {"cond": 1}


# Parameters


def test_tied_weights_count_once():
    class Tied(nn.Module):
        def __init__(self):
            super().__init__()
            self.embed, self.head = nn.Embedding(10, 4), nn.Linear(4, 10, bias=False)
            self.head.weight = self.embed.weight

        def forward(self, ids):
            return self.head(self.embed(ids))

    found = summary(Tied(), (2, 3), dtype="int64")
    rows = {row["name"]: row for row in found.rows}
    assert found.total_params == rows["embed"]["params"] == 40
    assert rows["head"]["params"] == 0 and rows["head"]["note"] == "weight is embed.weight"
    assert found.total_macs == 2 * 3 * 40


def test_parameters_used_by_functions_count():
    class Functional(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(torch.randn(3, 4))
            self.more = nn.ParameterList([nn.Parameter(torch.randn(2)), nn.Parameter(torch.randn(3), False)])
            self.inner = nn.Linear(3, 3)

        def forward(self, x):
            return self.inner(x @ self.weight.t()) + self.more[1]

    found = summary(Functional(), (5, 4))
    assert (found.total_params, found.trainable_params) == (12 + 2 + 3 + 12, 12 + 2 + 12)
    assert found.total_macs == 5 * 12 + 5 * 9
    assert {row["name"]: row["params"] for row in found.rows} == {"": 12, "inner": 12, "more": 5}
    assert_adds_up(found)


def test_calls_have_a_row_each_and_parameters_count_once():
    specimen = next(s for s in ZOO if s.name == "a module that calls itself")
    model, args, kwargs = specimen.seeded()
    found = summary(model, *args, **kwargs)
    assert [(row["name"], row["depth"], row["call"]) for row in found.rows] == [
        ("", 0, 1),
        ("fc", 1, 1),
        ("", 1, 2),
        ("fc", 2, 2),
        ("", 2, 3),
        ("fc", 3, 3),
    ]
    assert found.total_params == 12 and found.total_macs == 3 * 2 * 9


def test_a_shared_module_goes_by_the_name_its_caller_has_for_it():
    shared = nn.Linear(3, 3)
    model = nn.Sequential(nn.Sequential(shared), nn.Sequential(nn.Tanh(), shared))
    found = summary(model, (2, 3))
    assert [row["name"] for row in found.rows] == ["", "0", "0.0", "1", "1.0", "1.1"]
    assert [row["params"] for row in found.rows] == [0, 0, 12, 0, 0, 0]
    assert [row["macs"] for row in found.rows] == [0, 0, 18, 0, 0, 18]


def test_without_inputs():
    shared = nn.Linear(3, 3)
    found = summary(nn.Sequential(shared, nn.Tanh(), shared))
    data = found.to_dict()
    assert (data["total_params"], data["total_macs"], data["activation_bytes"]) == (12, None, None)
    assert [(row["name"], row["note"]) for row in data["rows"]] == [("", ""), ("0", ""), ("1", ""), ("2", "is 0")]
    assert_adds_up(found)


# Memory


def test_activations_are_what_modules_put_out_in_memory_of_its_own():
    model = nn.Sequential(nn.Linear(10, 20), nn.ReLU(inplace=True), nn.Flatten(), nn.Linear(20, 5), nn.ReLU())
    found = summary(model, (4, 10))
    assert [row["activation_bytes"] for row in found.rows] == [0, 4 * 20 * 4, 0, 0, 4 * 5 * 4, 4 * 5 * 4]
    assert found.activation_bytes == 320 + 80 + 80


@pytest.mark.parametrize("real", [False, True])
def test_what_a_backward_needs_is_what_autograd_keeps(real):
    """Against the storages that autograd really holds after a forward."""
    model = nn.Sequential(
        nn.Linear(10, 20), nn.ReLU(), nn.LayerNorm(20), nn.Softmax(-1), nn.Linear(20, 5), nn.GELU()
    )
    x = torch.randn(4, 10)
    kept = {}

    def pack(tensor):
        kept[tensor.untyped_storage().data_ptr()] = tensor.numel() * tensor.element_size()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        y = model(x)  # alive: its graph holds what was kept
    ours = {p.untyped_storage().data_ptr() for p in model.parameters()}
    expected = sum(size for place, size in kept.items() if place not in ours)
    assert y.requires_grad
    memory = summary(model, x, real=real).training_memory("adam")
    trained = 4 * sum(p.numel() for p in model.parameters())
    assert memory.activations == expected > 0
    assert (memory.parameters, memory.gradients, memory.state) == (trained, trained, 2 * trained)
    assert memory.total == 4 * trained + expected


def test_frozen_parameters_have_no_gradients_and_no_state():
    model = nn.Sequential(nn.Linear(10, 20), nn.Linear(20, 5))
    model[0].requires_grad_(False)
    memory = summary(model, (4, 10)).training_memory("sgd")
    assert memory.gradients == 4 * (20 * 5 + 5) and memory.state == 0
    with pytest.raises(hookline.InvalidArgument, match="adamw"):
        summary(model, (4, 10)).training_memory("adamm")
    with pytest.raises(hookline.InvalidArgument, match="depends on the input"):
        summary(model).training_memory()


def test_checkpointed_parts_keep_only_their_inputs():
    class Body(nn.Module):
        def __init__(self, checkpointed):
            super().__init__()
            self.part = nn.Sequential(nn.Linear(8, 8), nn.GELU(), nn.Linear(8, 8), nn.GELU())
            self.checkpointed = checkpointed

        def forward(self, x):
            run = (
                torch.utils.checkpoint.checkpoint if self.checkpointed else lambda part, x, use_reentrant: part(x)
            )
            return run(self.part, x, use_reentrant=False)

    plain, less = (summary(Body(flag), (16, 8)).training_memory().activations for flag in (False, True))
    assert less < plain / 2


# Over the zoo


def test_every_specimen_adds_up_and_is_left_alone(specimen):
    model, args, kwargs = specimen.seeded()
    inputs = list(leaves((args, kwargs), torch.Tensor))
    before = [t.detach().clone() for t in inputs]
    with untouched(model):
        found = summary(model, *args, **kwargs)
        real = summary(model, *args, **kwargs, real=True)
    assert_adds_up(found)
    assert found.total_params == real.total_params
    if specimen.steady:
        assert found.total_params == sum(p.numel() for p in model.parameters())
    assert (found.total_macs, found.activation_bytes) == (real.total_macs, real.activation_bytes)
    for tensor, was in zip(inputs, before, strict=True):
        assert torch.equal(tensor, was) and tensor.grad is None and type(tensor) is torch.Tensor


def test_modes_of_each_submodule_stay(specimen):
    model, args, kwargs = specimen.seeded()
    for number, module in enumerate(model.modules()):
        module.training = number % 2 == 0
    with untouched(model):
        summary(model, *args, **kwargs)
        summary(model, *args, **kwargs, real=True)


ACTIVATIONS = [getattr(nn, name) for name in nn.modules.activation.__all__ if name != "MultiheadAttention"]


@pytest.mark.parametrize("kind", ACTIVATIONS, ids=lambda kind: kind.__name__)
@pytest.mark.parametrize("training", [True, False])
def test_no_activation_is_of_unknown_cost(kind, training):
    taken = inspect.signature(kind).parameters
    needed = {name: value for name, value in {"threshold": 0.0, "value": 1.0, "dim": 1}.items() if name in taken}
    if kind is nn.Softplus:
        needed = {}
    for one in [needed, {**needed, "inplace": True}] if "inplace" in taken else [needed]:
        found = summary(nn.Sequential(nn.Identity(), kind(**one).train(training)), torch.rand(2, 4, 8, 8))
        assert (found.total_macs, found.unknown_ops) == (0, {})


IN_PLACE = [
    "abs_",
    "clamp_",
    "copysign_",
    "eq_",
    "gt_",
    "hardswish_",
    "heaviside_",
    "lerp_",
    "mish_",
    "threshold_",
]


@pytest.mark.parametrize("name", IN_PLACE)
def test_what_is_free_is_free_in_place(name):
    (overload, *_) = getattr(torch.ops.aten, name).overloads()
    assert costs.is_known(getattr(getattr(torch.ops.aten, name), overload))


def test_what_is_not_elementwise_stays_unknown_in_place():
    assert not costs.is_known(torch.ops.aten.linalg_inv_ex.default)
    assert not costs._is_tagged_free("addmm") and not costs._is_tagged_free("cholesky_inverse")


@pytest.mark.parametrize(
    "kind", [nn.MSELoss, nn.SmoothL1Loss, nn.HuberLoss, nn.BCEWithLogitsLoss, nn.SoftMarginLoss]
)
def test_losses_are_of_known_cost(kind):
    found = summary(kind(), torch.rand(2, 3), torch.rand(2, 3))
    assert found.unknown_ops == {}
