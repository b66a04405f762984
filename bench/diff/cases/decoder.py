"""Transformers that write: causal masks, rotary positions, caches, grouped heads."""

from __future__ import annotations

import torch
from torch import nn

from bench.diff.case import Case, broken
from bench.diff.networks import decoder
from bench.diff.networks.decoder import Cache
from bench.diff.networks.weights import copied, lived_in, ported


def ids() -> torch.Tensor:
    return torch.randint(0, 60, (2, 9))


@broken("decoder")
def rmsnorm_epsilon() -> Case:
    """Every RMSNorm has an epsilon of 1e-5 for 1e-6."""
    a = lived_in(decoder.Decoder())
    b = copied(a)
    for module in b.modules():
        if isinstance(module, decoder.RMSNorm):
            module.eps = 1e-5
    return Case(a, b, ids(), {"layers.0.norm1"}, {"setting"})


@broken("decoder")
def mask_off_by_one() -> Case:
    """The causal mask lets a word see the one after it."""

    class Attention(decoder.Attention):
        def forward(self, x: torch.Tensor, places: torch.Tensor, cache: Cache | None = None) -> torch.Tensor:
            batch, length, width = x.shape
            q = self.q(x).view(batch, length, self.heads, self.each).transpose(1, 2)
            k = self.k(x).view(batch, length, self.heads // 2, self.each).transpose(1, 2)
            v = self.v(x).view(batch, length, self.heads // 2, self.each).transpose(1, 2)
            q, k = self.rotary(q, places), self.rotary(k, places)
            k, v = k.repeat_interleave(2, dim=1), v.repeat_interleave(2, dim=1)
            future = torch.ones(length, length, dtype=torch.bool).triu(2)
            scores = (q @ k.transpose(-1, -2) * self.each**-0.5).masked_fill(future, -torch.inf)
            mixed = scores.softmax(-1) @ v
            return self.out(mixed.transpose(1, 2).reshape(batch, length, width))

    a = lived_in(decoder.Decoder())
    return Case(a, ported(a, decoder.Decoder(Attention)), ids(), {"layers.0.attn"}, {"code"})


@broken("decoder")
def rotary_interleaved() -> Case:
    """Rotary positions turn neighbours against each other, not one half of a head against the other."""

    class Rotary(decoder.Rotary):
        def forward(self, x: torch.Tensor, places: torch.Tensor) -> torch.Tensor:
            angles = places[:, None] * self.turns
            cos, sin = angles.cos(), angles.sin()
            even, odd = x[..., 0::2], x[..., 1::2]
            return torch.stack([even * cos - odd * sin, odd * cos + even * sin], dim=-1).flatten(-2)

    a = lived_in(decoder.Decoder())
    b = ported(a, decoder.Decoder(rotary=Rotary))
    return Case(a, b, ids(), {"layers.0.attn.rotary"}, {"code"})


@broken("decoder")
def cache_rolls_early() -> Case:
    """The cache drops its oldest key one step too early."""

    class Attention(decoder.Attention):
        def keep(self, cache: Cache, k: torch.Tensor, v: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            if cache:
                k, v = torch.cat([cache["k"], k], dim=2), torch.cat([cache["v"], v], dim=2)
            if k.shape[2] >= self.window:
                k, v = k[:, :, 1 - self.window :], v[:, :, 1 - self.window :]
            cache["k"], cache["v"] = k, v
            return k, v

    a = lived_in(decoder.Decoder(stepwise=True))
    b = ported(a, decoder.Decoder(Attention, stepwise=True))
    return Case(a, b, ids(), {"layers.0.attn"}, {"code"})


@broken("decoder")
def gelu_for_silu() -> Case:
    """The gate of the second block goes through GELU, not SiLU."""
    a = lived_in(decoder.Decoder())
    b = copied(a)
    b.layers[1].mlp.act = nn.GELU()
    return Case(a, b.eval(), ids(), {"layers.1.mlp.act"}, {"type"})


@broken("decoder")
def temperature() -> Case:
    """Logits are divided by a temperature of 0.7."""
    a = lived_in(decoder.Decoder())
    b = ported(a, decoder.Decoder(temperature=0.7))
    return Case(a, b, ids(), {""}, {"setting"})


@broken("decoder")
def one_layer_in_bf16() -> Case:
    """The last product of one MLP has its weights in bfloat16."""
    a = lived_in(decoder.Decoder())
    b = copied(a)
    b.layers[0].mlp.down.to(torch.bfloat16)
    return Case(a, b, ids(), {"layers.0.mlp.down", "layers.0.mlp"}, {"dtype"})


@broken("decoder")
def one_weight_off() -> Case:
    """One number of one kernel is larger by 1e-4."""
    a = lived_in(decoder.Decoder())
    b = copied(a)
    b.layers[1].attn.k.weight.data[3, 5] += 1e-4
    return Case(a, b, ids(), {"layers.1.attn.k"}, {"weights"})


@broken("decoder")
def groups_tiled() -> Case:
    """Keys are repeated as 0 1 0 1 for the heads, not as 0 0 1 1."""

    class Attention(decoder.Attention):
        def forward(self, x: torch.Tensor, places: torch.Tensor, cache: Cache | None = None) -> torch.Tensor:
            batch, length, width = x.shape
            q = self.q(x).view(batch, length, self.heads, self.each).transpose(1, 2)
            k = self.k(x).view(batch, length, self.heads // 2, self.each).transpose(1, 2)
            v = self.v(x).view(batch, length, self.heads // 2, self.each).transpose(1, 2)
            q, k = self.rotary(q, places), self.rotary(k, places)
            k, v = k.repeat(1, 2, 1, 1), v.repeat(1, 2, 1, 1)
            future = torch.ones(length, length, dtype=torch.bool).triu(1)
            scores = (q @ k.transpose(-1, -2) * self.each**-0.5).masked_fill(future, -torch.inf)
            mixed = scores.softmax(-1) @ v
            return self.out(mixed.transpose(1, 2).reshape(batch, length, width))

    a = lived_in(decoder.Decoder())
    return Case(a, ported(a, decoder.Decoder(Attention)), ids(), {"layers.0.attn"}, {"code"})
