"""A Llama by hand: pre-norm by RMSNorm, rotary positions, grouped heads, a gated MLP, a cache with a window."""

from __future__ import annotations

import torch
from torch import nn

Cache = dict[str, torch.Tensor]


class RMSNorm(nn.Module):
    def __init__(self, width: int, eps: float = 1e-6) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))
        self.eps = eps

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.weight * x * torch.rsqrt(x.square().mean(-1, keepdim=True) + self.eps)


class Rotary(nn.Module):
    """Turns the first half of each head against the second, by an angle that grows with the place."""

    def __init__(self, width: int, base: float = 10_000.0) -> None:
        super().__init__()
        self.register_buffer("turns", base ** (-torch.arange(0, width, 2) / width))

    def forward(self, x: torch.Tensor, places: torch.Tensor) -> torch.Tensor:
        angles = places[:, None] * self.turns
        cos, sin = angles.cos(), angles.sin()
        one, two = x.chunk(2, dim=-1)
        return torch.cat([one * cos - two * sin, two * cos + one * sin], dim=-1)


class Attention(nn.Module):
    """Causal; two heads share a key and a value. A cache keeps the last `window` of them."""

    def __init__(self, width: int, rotary: type[nn.Module] = Rotary, heads: int = 4, window: int = 4) -> None:
        super().__init__()
        self.heads, self.each, self.window = heads, width // heads, window
        self.q = nn.Linear(width, width, bias=False)
        self.k = nn.Linear(width, width // 2, bias=False)
        self.v = nn.Linear(width, width // 2, bias=False)
        self.out = nn.Linear(width, width, bias=False)
        self.rotary = rotary(self.each)

    def forward(self, x: torch.Tensor, places: torch.Tensor, cache: Cache | None = None) -> torch.Tensor:
        batch, length, width = x.shape
        q = self.q(x).view(batch, length, self.heads, self.each).transpose(1, 2)
        k = self.k(x).view(batch, length, self.heads // 2, self.each).transpose(1, 2)
        v = self.v(x).view(batch, length, self.heads // 2, self.each).transpose(1, 2)
        q, k = self.rotary(q, places), self.rotary(k, places)
        if cache is not None:
            k, v = self.keep(cache, k, v)
        k, v = k.repeat_interleave(2, dim=1), v.repeat_interleave(2, dim=1)
        future = torch.ones(length, k.shape[2], dtype=torch.bool).triu(1 + k.shape[2] - length)
        scores = (q @ k.transpose(-1, -2) * self.each**-0.5).masked_fill(future, -torch.inf)
        mixed = scores.softmax(-1) @ v
        return self.out(mixed.transpose(1, 2).reshape(batch, length, width))

    def keep(self, cache: Cache, k: torch.Tensor, v: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """The keys and values of the window, the new ones included; the oldest roll out."""
        if cache:
            k, v = torch.cat([cache["k"], k], dim=2), torch.cat([cache["v"], v], dim=2)
        if k.shape[2] > self.window:
            k, v = k[:, :, -self.window :], v[:, :, -self.window :]
        cache["k"], cache["v"] = k, v
        return k, v


class GatedMlp(nn.Module):
    """The last product is in the dtype of its weights, which some keep higher or lower than the rest."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.gate = nn.Linear(width, 2 * width, bias=False)
        self.up = nn.Linear(width, 2 * width, bias=False)
        self.down = nn.Linear(2 * width, width, bias=False)
        self.act = nn.SiLU()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        inner = self.act(self.gate(x)) * self.up(x)
        return self.down(inner.to(self.down.weight.dtype)).to(x.dtype)


class Block(nn.Module):
    def __init__(self, width: int, attention: type[nn.Module], rotary: type[nn.Module]) -> None:
        super().__init__()
        self.norm1 = RMSNorm(width)
        self.attn = attention(width, rotary)
        self.norm2 = RMSNorm(width)
        self.mlp = GatedMlp(width)

    def forward(self, x: torch.Tensor, places: torch.Tensor, cache: Cache | None = None) -> torch.Tensor:
        x = x + self.attn(self.norm1(x), places, cache)
        return x + self.mlp(self.norm2(x))


class Decoder(nn.Module):
    """Ids to logits; `stepwise` feeds them one by one, through the cache."""

    def __init__(
        self,
        attention: type[nn.Module] = Attention,
        rotary: type[nn.Module] = Rotary,
        stepwise: bool = False,
        temperature: float = 1.0,
        width: int = 32,
    ) -> None:
        super().__init__()
        self.stepwise, self.temperature = stepwise, temperature
        self.embed = nn.Embedding(60, width)
        nn.init.normal_(self.embed.weight, std=0.02)
        self.layers = nn.ModuleList(Block(width, attention, rotary) for _ in range(2))
        self.norm = RMSNorm(width)
        self.head = nn.Linear(width, 60, bias=False)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        if not self.stepwise:
            return self.run(ids, torch.arange(ids.shape[1]), [None] * len(self.layers))
        caches: list[Cache] = [{} for _ in self.layers]
        steps = [self.run(ids[:, [at]], torch.tensor([at]), caches) for at in range(ids.shape[1])]
        return torch.cat(steps, dim=1)

    def run(self, ids: torch.Tensor, places: torch.Tensor, caches: list[Cache] | list[None]) -> torch.Tensor:
        x = self.embed(ids)
        for layer, cache in zip(self.layers, caches, strict=True):
            x = layer(x, places, cache)
        return self.head(self.norm(x)) / self.temperature
