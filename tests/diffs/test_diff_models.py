"""hookline.diff of two models: the first place, whether the error is born there, and why."""

import copy
import gc
import tempfile

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

import hookline
from hookline.testing import untouched


class Block(nn.Module):
    """A residual block whose own code can be varied."""

    def __init__(self, width=8, scale=1.0, order="pre"):
        super().__init__()
        self.norm, self.up, self.act, self.down = (
            nn.LayerNorm(width),
            nn.Linear(width, 16),
            nn.GELU(),
            nn.Linear(16, width),
        )
        self._scale, self._order = scale, order

    def forward(self, x):
        inner = self.norm(x) if self._order == "pre" else x
        return x + self.down(self.act(self.up(inner))) * self._scale


class Net(nn.Module):
    def __init__(self, blocks=4, **at):
        super().__init__()
        self.embed = nn.Embedding(11, 8)
        self.blocks = nn.ModuleList(Block(**at.get(str(i), {})) for i in range(blocks))
        self.head = nn.Linear(8, 5)

    def forward(self, ids, temperature=1.0):
        h = self.embed(ids)
        for block in self.blocks:
            h = block(h)
        return self.head(h.mean(1)) / temperature


def net(**at):
    torch.manual_seed(0)
    return Net(**at).eval()


IDS = torch.arange(30).reshape(3, 10) % 11


def twin(model):
    return copy.deepcopy(model)


def test_two_copies_are_the_same_to_the_bit():
    a = net()
    d = hookline.diff(a, twin(a), IDS)
    assert not d and d.first is None and d.bound == 0.0
    assert d.forwards == ["A", "B"]
    assert {one.verdict for one in d.sites} == {"equal"}
    assert str(d).startswith("The same, to the bit")


@pytest.mark.parametrize("site", ["embed", "blocks.0.norm", "blocks.2.up", "blocks.3.down", "head"])
def test_a_weight_that_differs_is_named(site):
    a = net()
    b = twin(a)
    with torch.no_grad():
        b.get_submodule(site).weight.view(-1)[3] += 1e-2
    d = hookline.diff(a, b, IDS)
    assert (d.first.site, d.first.kind, d.first.born) == (site, "output", True)
    assert d.causes[0].name == "weights" and f"{site}.weight" in d.causes[0].sentence
    later = [one for one in d.sites if one.kind == "output" and one.differs and one.site != site]
    assert all(one.born is False for one in later)


def test_the_error_that_each_place_adds_is_its_own():
    a = net()
    b = twin(a)
    with torch.no_grad():
        b.blocks[0].up.weight.mul_(1.001)
        b.blocks[2].up.weight.mul_(1.01)
    d = hookline.diff(a, b, IDS)
    born = [one.site for one in d.sites if one.kind == "output" and one.born]
    assert d.first.site == "blocks.0.up" and born == ["blocks.0.up", "blocks.2.up"]


def test_settings_types_and_modes_are_causes():
    a = net()
    for change, name, site in [
        (lambda b: setattr(b.blocks[1].norm, "eps", 1e-3), "setting", "blocks.1.norm"),
        (lambda b: setattr(b.blocks[1].act, "approximate", "tanh"), "setting", "blocks.1.act"),
        (lambda b: setattr(b.blocks[1], "act", nn.SiLU()), "type", "blocks.1.act"),
    ]:
        b = twin(a)
        change(b)
        d = hookline.diff(a, b, IDS)
        assert (d.first.site, d.causes[0].name) == (site, name)


def test_dropout_left_on_is_a_mode():
    a = nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.5), nn.Linear(4, 2)).eval()
    b = twin(a)
    b[1].train()
    d = hookline.diff(a, b, torch.randn(3, 4))
    assert (d.first.site, d.causes[0].name) == ("1", "mode")


def test_dropout_with_the_same_random_numbers_is_the_same():
    a = nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.5), nn.Linear(4, 2)).train()
    assert not hookline.diff(a, twin(a), torch.randn(3, 4))


def test_other_random_numbers_are_a_cause_and_nobody_is_blamed_for_them():
    class Noisy(nn.Module):
        def __init__(self, draws):
            super().__init__()
            self.first, self.drop, self.last, self._draws = (
                nn.Linear(4, 64),
                nn.Dropout(0.5),
                nn.Linear(64, 2),
                draws,
            )

        def forward(self, x):
            for _ in range(self._draws):
                torch.rand(1)
            return self.last(self.drop(self.first(x)))

    a, b = Noisy(0), Noisy(1)
    b.load_state_dict(a.state_dict())
    d = hookline.diff(a, b, torch.randn(3, 4))
    assert d.first.site == "drop" and d.causes[0].name == "random numbers"


def test_the_own_code_of_a_container_is_told_from_that_of_its_parts():
    a, b = net(), net(**{"2": {"scale": 0.5}})
    d = hookline.diff(a, b, IDS)
    assert d.first.site == "blocks.2" and d.first.born
    assert d.causes[0].name == "code" and "test_diff_models.py" in d.first.line


def test_code_that_hands_other_values_to_a_part_is_told_with_the_part():
    a, b = net(), net(**{"1": {"order": "post"}})
    d = hookline.diff(a, b, IDS)
    assert d.first.site == "blocks.1" and "'blocks.1.up'" in d.first.why


def test_other_inputs_are_told_and_nothing_is_blamed():
    a = net()
    other = IDS.clone()
    other[0, 0] += 1
    d = hookline.diff((a, IDS), (twin(a), other))
    assert d.first.kind == "input" and d.causes[0].name == "inputs"


def test_keywords_and_several_arguments():
    a = net()
    d = hookline.diff((a, {"ids": IDS, "temperature": 1.0}), (twin(a), {"ids": IDS, "temperature": 2.0}))
    assert d.first.site == "" and d.first.born


def test_gradients_part_where_the_forward_does_not():
    class Detached(nn.Module):
        def __init__(self, cut):
            super().__init__()
            self.a, self.b, self._cut = nn.Linear(4, 4), nn.Linear(4, 4), cut

        def forward(self, x):
            h = self.a(x)
            side = h.detach() if self._cut else h
            return self.b(h) + side

    a, b = Detached(False), Detached(True)
    b.load_state_dict(a.state_dict())
    d = hookline.diff((a, torch.randn(3, 4)), (b, torch.randn(3, 4)), loss=lambda out: out.square().sum())
    assert d.first.kind == "input"
    x = torch.randn(3, 4)
    assert not hookline.diff(a, b, x)
    d = hookline.diff(a, b, x, loss=lambda out: out.square().sum())
    assert d.first.site == "" and d.first.kind == "grad_output" and d.first.born and "'a'" in d.first.why


def test_a_parameter_whose_gradient_differs():
    class Scaled(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, weight):
            ctx.save_for_backward(x, weight)
            return x @ weight.t()

        @staticmethod
        def backward(ctx, grad):
            x, weight = ctx.saved_tensors
            return grad @ weight, 2 * grad.t() @ x

    class Own(nn.Linear):
        def forward(self, x):
            return Scaled.apply(x, self.weight)

    a = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4, bias=False), nn.Linear(4, 2))
    b = twin(a)
    b[1] = Own(4, 4, bias=False)
    b[1].load_state_dict(a[1].state_dict())
    d = hookline.diff(a, b, torch.randn(3, 4), loss=lambda out: out.square().sum())
    assert (d.first.site, d.first.kind, d.first.born) == ("1.weight", "param_grad", True)


@pytest.mark.filterwarnings("ignore:.*torch.jit.script_method.*:DeprecationWarning")  # torch's own import
def test_compiled_and_eager_are_the_same_within_rounding():
    a = net()
    d = hookline.diff(a, torch.compile(twin(a)), IDS)
    assert not d and 0 <= d.bound < 1e-3


def test_a_change_of_dtype_that_is_meant_is_within_its_rounding():
    a = nn.Sequential(nn.Linear(16, 32), nn.GELU(), nn.LayerNorm(32), nn.Linear(32, 4)).eval()
    x = torch.randn(6, 16)
    d = hookline.diff((a, x), (twin(a).bfloat16(), x.bfloat16()))
    assert not d, str(d)
    assert any("bfloat16" in note for note in d.notes)
    b = twin(a).bfloat16()
    with torch.no_grad():
        b[3].weight.mul_(1.5)
    assert hookline.diff((a, x), (b, x.bfloat16())).first.site == "3"


def test_one_layer_in_another_dtype_is_told():
    class Low(nn.Linear):
        def forward(self, x):
            return nn.functional.linear(x.bfloat16(), self.weight.bfloat16(), self.bias.bfloat16()).float()

    a = nn.Sequential(*[nn.Linear(8, 8) for _ in range(4)])
    b = twin(a)
    b[2] = Low(8, 8)
    b[2].load_state_dict(a[2].state_dict())
    d = hookline.diff(a, b, torch.randn(3, 8))
    assert d.first.site == "2" and "dtype" in [cause.name for cause in d.causes], str(d)


def test_both_models_stay_what_they_were():
    a = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Dropout(0.3), nn.Linear(4, 2)).train()
    b = twin(a)
    b[3].weight.data.mul_(2)
    x = torch.randn(6, 4, requires_grad=True)
    with untouched(a), untouched(b):
        state = torch.get_rng_state()
        d = hookline.diff(a, b, x, loss=lambda out: out.sum())
        assert torch.equal(torch.get_rng_state(), state)
    assert d.first.site == "3" and x.grad is None
    assert all(parameter.grad is None for model in (a, b) for parameter in model.parameters())


def test_a_model_that_writes_in_place():
    class Written(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv, self.bn, self.relu = nn.Conv2d(2, 3, 3), nn.BatchNorm2d(3), nn.ReLU(inplace=True)

        def forward(self, x):
            h = self.bn(self.conv(x))
            self.relu(h)  # what it returns is not used
            x.zero_()
            return h * 2

    a = Written().eval()
    b = twin(a)
    x = torch.randn(2, 2, 6, 6)
    assert not hookline.diff(a, b, x)
    with torch.no_grad():
        b.bn.weight.mul_(1.1)
    assert hookline.diff(a, b, x).first.site == "bn"


def test_a_shared_module_is_told_call_by_call():
    class Twice(nn.Module):
        def __init__(self, swap):
            super().__init__()
            self.layer, self._swap = nn.Linear(4, 4), swap

        def forward(self, x):
            h = self.layer(x)
            return self.layer(h * (2.0 if self._swap else 1.0))

    a, b = Twice(False), Twice(True)
    b.load_state_dict(a.state_dict())
    d = hookline.diff(a, b, torch.randn(2, 4))
    assert d.first.site == "" and "'layer'" in d.first.why


def test_missing_and_additional_calls():
    class Optional(nn.Module):
        def __init__(self, skip):
            super().__init__()
            self.a, self.b, self.c, self._skip = nn.Linear(4, 4), nn.Linear(4, 4), nn.Linear(4, 4), skip

        def forward(self, x):
            h = self.a(x)
            return self.c(h if self._skip else self.b(h))

    a, b = Optional(False), Optional(True)
    b.load_state_dict(a.state_dict())
    x = torch.randn(2, 4)
    d = hookline.diff(a, b, x)
    assert d.first.site == "" and d.causes[0].name == "missing call"
    assert [(one.verdict, one.site) for one in d.unmatched] == [("missing", "b")]
    d = hookline.diff(b, a, x)
    assert d.causes[0].name == "additional call"


def test_renamed_modules_by_a_map_and_by_themselves():
    a = nn.Sequential()
    b = nn.Sequential()
    for model, names in ((a, ["first", "act", "last"]), (b, ["in_proj", "nonlinearity", "out_proj"])):
        for name, module in zip(names, [nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2)], strict=True):
            model.add_module(name, module)
    for (_, one), (_, two) in zip(a.named_parameters(), b.named_parameters(), strict=True):
        two.data.copy_(one.data)
    x = torch.randn(3, 4)
    names = {"first": "in_proj", "act": "nonlinearity", "last": "out_proj"}
    assert not hookline.diff(a, b, x) and not hookline.diff(a, b, x, map=names)
    b.out_proj.weight.data.mul_(2)
    d = hookline.diff(a, b, x, map=names)
    assert (d.first.site, d.first.other) == ("last", "out_proj")


def test_a_user_may_say_what_is_the_same():
    a = net()
    b = twin(a)
    with torch.no_grad():
        b.head.weight.mul_(1.001)
    assert hookline.diff(a, b, IDS) and not hookline.diff(a, b, IDS, rtol=1e-2)
    assert hookline.diff(a, b, IDS, rtol={"blocks.**": 1e-2}).first.site == "head"


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: hookline.diff(net(), net()), "without inputs"),
        (lambda: hookline.diff((net(), IDS, 1), (net(), IDS)), "a tuple of 3"),
        (lambda: hookline.diff(net(), net(), IDS, rtol=-1.0), "rtol=-1.0: expected a number"),
        (lambda: hookline.diff(net(), net(), IDS, loss=lambda out: 3), "expected a scalar tensor"),
        (lambda: hookline.diff(3, 4), "expected \\(model, inputs\\)"),
    ],
)
def test_what_can_not_be_compared_is_said(call, words):
    with pytest.raises(hookline.InvalidArgument, match=words):
        call()


def test_more_values_than_memory_may_hold_go_to_files(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    a = net()
    b = twin(a)
    with torch.no_grad():
        b.head.weight.mul_(2)
    d = hookline.diff(a, b, IDS, limit=1000)
    assert d.first.site == "head"
    assert list(tmp_path.rglob("*.safetensors"))
    one, two = d.values(d.first)
    assert one.shape == two.shape and abs(one - two).max() > 0
    del d, one, two
    gc.collect()
    assert list(tmp_path.iterdir()) == []


LAYERS = {
    "linear": lambda: nn.Linear(6, 6),
    "norm": lambda: nn.LayerNorm(6),
    "act": lambda: nn.Tanh(),
    "batch": lambda: nn.BatchNorm1d(6),
    "pair": lambda: nn.Sequential(nn.Linear(6, 6), nn.SiLU()),
}


@settings(max_examples=30, deadline=None)
@given(st.lists(st.sampled_from(sorted(LAYERS)), min_size=2, max_size=7), st.data())
def test_in_any_chain_the_part_with_another_weight_is_the_first(kinds, data):
    torch.manual_seed(len(kinds))
    a = nn.Sequential(*(LAYERS[kind]() for kind in kinds)).eval()
    with_weights = [
        name for name, module in a.named_modules() if "weight" in dict(module.named_parameters(recurse=False))
    ]
    if not with_weights:
        return
    b = twin(a)
    at = data.draw(st.sampled_from(with_weights))
    with torch.no_grad():
        b.get_submodule(at).weight.mul_(1.01)
    d = hookline.diff(a, b, torch.randn(5, 6))
    assert (d.first.site, d.first.born) == (at, True)
    assert not hookline.diff(a, twin(a), torch.randn(5, 6))
