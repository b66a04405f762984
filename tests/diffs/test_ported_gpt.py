"""GPT-2 of transformers against one's own with other names: weights carried over, alignment without a map."""

import pytest
import torch
from torch import nn
from torch.nn.functional import scaled_dot_product_attention
from transformers import GPT2Config, GPT2LMHeadModel

import hookline

WIDTH, HEADS, LAYERS, WORDS, LENGTH = 16, 2, 3, 50, 20


class Attention(nn.Module):
    def __init__(self, scale):
        super().__init__()
        self.qkv, self.proj = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self._scale = scale

    def forward(self, x):
        heads = (one.unflatten(-1, (HEADS, -1)).transpose(1, 2) for one in self.qkv(x).split(WIDTH, -1))
        return self.proj(
            scaled_dot_product_attention(*heads, is_causal=True, scale=self._scale).transpose(1, 2).flatten(2)
        )


class Ffn(nn.Module):
    def __init__(self, approximate):
        super().__init__()
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)
        self.act = nn.GELU(approximate=approximate)

    def forward(self, x):
        return self.down(self.act(self.up(x)))


class Block(nn.Module):
    def __init__(self, scale=None, approximate="tanh", eps=1e-5):
        super().__init__()
        self.norm1, self.attention = nn.LayerNorm(WIDTH, eps=eps), Attention(scale)
        self.norm2, self.ffn = nn.LayerNorm(WIDTH), Ffn(approximate)

    def forward(self, x):
        x = x + self.attention(self.norm1(x))
        return x + self.ffn(self.norm2(x))


class Gpt(nn.Module):
    def __init__(self, at=None, **mistake):
        super().__init__()
        self.tok, self.pos = nn.Embedding(WORDS, WIDTH), nn.Embedding(LENGTH, WIDTH)
        self.layers = nn.ModuleList(Block(**(mistake if n == at else {})) for n in range(LAYERS))
        self.norm, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, WORDS, bias=False)
        self.head.weight = self.tok.weight

    def forward(self, ids):
        x = self.tok(ids) + self.pos(torch.arange(ids.shape[1]))
        for layer in self.layers:
            x = layer(x)
        return self.head(self.norm(x))


@pytest.fixture(scope="module")
def theirs():
    config = GPT2Config(
        n_layer=LAYERS,
        n_head=HEADS,
        n_embd=WIDTH,
        vocab_size=WORDS,
        n_positions=LENGTH,
        bos_token_id=0,
        eos_token_id=0,
    )
    torch.manual_seed(0)
    model = GPT2LMHeadModel(config).eval()
    for parameter in model.parameters():
        parameter.data.normal_(0, 0.3)
    return model


@pytest.fixture(scope="module")
def weights(theirs, tmp_path_factory):
    return hookline.save_weights(theirs, tmp_path_factory.mktemp("gpt") / "weights.safetensors")


def ids():
    return torch.randint(0, WORDS, (2, 7), generator=torch.Generator().manual_seed(1))


def sides(theirs, own):
    return (theirs, {"input_ids": ids(), "use_cache": False}), (own, ids())


def ported(weights, **mistake):
    own = Gpt(**mistake).eval()
    loaded = hookline.load_weights(own, weights)
    assert loaded.placed["transformer.h.2.attn.c_attn.weight"] == "layers.2.attention.qkv.weight"
    return own


def test_weights_go_there_and_back(theirs, weights, tmp_path):
    own = ported(weights)
    back = GPT2LMHeadModel(theirs.config).eval()
    hookline.load_weights(back, hookline.save_weights(own, tmp_path / "back.safetensors"))
    assert torch.equal(back(ids()).logits, theirs(ids()).logits)


def test_a_right_port_is_the_same_without_a_map(theirs, weights):
    found = hookline.diff(*sides(theirs, ported(weights)))
    assert not found, str(found)
    outputs = {one.site: one.other for one in found.sites if one.kind == "output"}
    for number in range(LAYERS):
        for one, other in (
            ("attn", "attention"),
            ("mlp.act", "ffn.act"),
            ("ln_2", "norm2"),
            ("mlp.c_proj", "ffn.down"),
        ):
            assert outputs[f"transformer.h.{number}.{one}"] == f"layers.{number}.{other}"


@pytest.mark.parametrize(
    ("mistake", "site"),
    [
        ({"at": 1, "approximate": "none"}, "transformer.h.1.mlp.act"),
        ({"at": 2, "eps": 1e-3}, "transformer.h.2.ln_1"),
        ({"at": 0, "scale": 1.0}, "transformer.h.0.attn"),
    ],
)
def test_the_mistake_of_a_port_is_found_without_a_map(theirs, weights, mistake, site):
    found = hookline.diff(*sides(theirs, ported(weights, **mistake)))
    assert found and found.first.site == site and found.first.born, str(found)


def test_a_proposed_map_has_a_line_for_all_layers(theirs, weights):
    own = ported(weights)
    with torch.no_grad(), hookline.record(theirs) as a:
        theirs(ids(), use_cache=False)
    with torch.no_grad(), hookline.record(own) as b:
        own(ids())
    rules = {rule.a: rule.b for rule in hookline.propose_map(a, b).rules}
    assert (
        rules["transformer.h.*.attn"] == "layers.*.attention" and rules["transformer.h.*.ln_1"] == "layers.*.norm1"
    )
    assert rules["transformer.wte"] == "tok" and len(rules) < 20
