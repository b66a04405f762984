"""Transformers that read: masks, heads, scales, norms, positions."""

from __future__ import annotations

import math

import torch
from torch import nn

from bench.diff.case import Case, broken
from bench.diff.networks import encoder
from bench.diff.networks.weights import copied, lived_in, ported


def reference() -> encoder.Encoder:
    return lived_in(encoder.Encoder())


@broken("encoder")
def layernorm_epsilon() -> Case:
    """Every LayerNorm has torch's epsilon, 1e-5 for BERT's 1e-12."""
    a = reference()
    b = copied(a)
    for module in b.modules():
        if isinstance(module, nn.LayerNorm):
            module.eps = 1e-5
    return Case(a, b, encoder.sentences(), {"embed.norm"}, {"setting"})


@broken("encoder")
def gelu_by_tanh() -> Case:
    """GELU is the approximation by tanh."""
    a = reference()
    b = copied(a)
    for layer in b.layers:
        layer.mlp.act = nn.GELU(approximate="tanh")
    return Case(a, b.eval(), encoder.sentences(), {"layers.0.mlp.act"}, {"setting"})


@broken("encoder")
def scale_forgotten() -> Case:
    """Scores are not divided by the root of the width of a head."""

    class Attention(encoder.Attention):
        def forward(self, x: torch.Tensor, keep: torch.Tensor) -> torch.Tensor:
            q, k, v = self.split(self.query(x)), self.split(self.key(x)), self.split(self.value(x))
            scores = q @ k.transpose(-1, -2)
            scores = scores.masked_fill(~keep[:, None, None, :], -math.inf)
            mixed = scores.softmax(-1) @ v
            return self.out(mixed.transpose(1, 2).reshape(x.shape))

    a = reference()
    b = ported(a, encoder.Encoder(attention=Attention))
    return Case(a, b, encoder.sentences(), {"layers.0.attn"}, {"code"})


@broken("encoder")
def heads_by_view() -> Case:
    """Heads are split off by one view, without moving the axis of the length."""

    class Attention(encoder.Attention):
        def split(self, x: torch.Tensor) -> torch.Tensor:
            batch, length, width = x.shape
            return x.view(batch, self.heads, length, width // self.heads)

    a = reference()
    b = ported(a, encoder.Encoder(attention=Attention))
    return Case(a, b, encoder.sentences(), {"layers.0.attn"}, {"code"})


@broken("encoder")
def mask_inverted() -> Case:
    """The mask says what is padding where it should say what is not."""

    class Attention(encoder.Attention):
        def forward(self, x: torch.Tensor, keep: torch.Tensor) -> torch.Tensor:
            q, k, v = self.split(self.query(x)), self.split(self.key(x)), self.split(self.value(x))
            scores = q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1])
            scores = scores.masked_fill(keep[:, None, None, :], -math.inf)
            mixed = scores.softmax(-1) @ v
            return self.out(mixed.transpose(1, 2).reshape(x.shape))

    a = reference()
    b = ported(a, encoder.Encoder(attention=Attention))
    return Case(a, b, encoder.sentences(), {"layers.0.attn"}, {"code"})


@broken("encoder")
def dropout_left_on() -> Case:
    """One Dropout of a model in eval mode is in training mode."""
    a = reference()
    b = copied(a)
    b.layers[1].drop.train()
    return Case(a, b, encoder.sentences(), {"layers.1.drop"}, {"mode"})


@broken("encoder")
def norm_before() -> Case:
    """Norms come before attention and MLP, not after the residual."""

    class Layer(encoder.Layer):
        def forward(self, x: torch.Tensor, keep: torch.Tensor) -> torch.Tensor:
            x = x + self.drop(self.attn(self.norm1(x), keep))
            return x + self.drop(self.mlp(self.norm2(x)))

    a = reference()
    b = ported(a, encoder.Encoder(layer=Layer))
    return Case(a, b, encoder.sentences(), {"layers.0"}, {"code", "order"})


@broken("encoder")
def position_off_by_one() -> Case:
    """The first word has position 1, as in models that keep 0 for padding."""

    class Embeddings(encoder.Embeddings):
        def forward(self, ids: torch.Tensor) -> torch.Tensor:
            places = torch.arange(1, ids.shape[1] + 1)
            return self.norm(self.word(ids) + self.position(places))

    a = reference()
    b = ported(a, encoder.Encoder(embeddings=Embeddings))
    return Case(a, b, encoder.sentences(), {"embed"}, {"code"})


@broken("encoder")
def torch_norm_first() -> Case:
    """torch's own encoder was built with norm_first=True."""

    def build(first: bool) -> nn.Module:
        layer = nn.TransformerEncoderLayer(16, 2, 32, 0.0, batch_first=True, norm_first=first)
        model = nn.Sequential(nn.Linear(8, 16), nn.TransformerEncoder(layer, 2, enable_nested_tensor=False))
        return model.append(nn.Linear(16, 3))

    a = lived_in(build(False))
    b = ported(a, build(True))
    return Case(a, b, torch.randn(2, 9, 8), {"1.layers.0"}, {"setting", "order"})
