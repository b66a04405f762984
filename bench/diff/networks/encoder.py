"""A BERT by hand: post-norm, learnt positions, a mask for padding."""

from __future__ import annotations

import math

import torch
from torch import nn


class Embeddings(nn.Module):
    """Words and positions, normalised."""

    def __init__(self, words: int, length: int, width: int) -> None:
        super().__init__()
        self.word = nn.Embedding(words, width)
        self.position = nn.Embedding(length, width)
        self.norm = nn.LayerNorm(width, eps=1e-12)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        places = torch.arange(ids.shape[1])
        return self.norm(self.word(ids) + self.position(places))


class Attention(nn.Module):
    """Attention of several heads; `keep` is False where there is padding."""

    def __init__(self, width: int, heads: int = 4) -> None:
        super().__init__()
        self.heads = heads
        self.query = nn.Linear(width, width)
        self.key = nn.Linear(width, width)
        self.value = nn.Linear(width, width)
        self.out = nn.Linear(width, width)

    def split(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, width = x.shape
        return x.view(batch, length, self.heads, width // self.heads).transpose(1, 2)

    def forward(self, x: torch.Tensor, keep: torch.Tensor) -> torch.Tensor:
        q, k, v = self.split(self.query(x)), self.split(self.key(x)), self.split(self.value(x))
        scores = q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1])
        scores = scores.masked_fill(~keep[:, None, None, :], -math.inf)
        mixed = scores.softmax(-1) @ v
        return self.out(mixed.transpose(1, 2).reshape(x.shape))


class Mlp(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.fc1 = nn.Linear(width, 2 * width)
        self.act = nn.GELU()
        self.fc2 = nn.Linear(2 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.fc2(self.act(self.fc1(x)))


class Layer(nn.Module):
    """The norm comes after the residual, as in the first transformer."""

    def __init__(self, width: int, attention: type[nn.Module] = Attention) -> None:
        super().__init__()
        self.attn = attention(width)
        self.norm1 = nn.LayerNorm(width, eps=1e-12)
        self.mlp = Mlp(width)
        self.norm2 = nn.LayerNorm(width, eps=1e-12)
        self.drop = nn.Dropout(0.1)

    def forward(self, x: torch.Tensor, keep: torch.Tensor) -> torch.Tensor:
        x = self.norm1(x + self.drop(self.attn(x, keep)))
        return self.norm2(x + self.drop(self.mlp(x)))


class Encoder(nn.Module):
    """Ids and which of them are no padding, to a class of each word."""

    def __init__(
        self,
        embeddings: type[nn.Module] = Embeddings,
        layer: type[nn.Module] = Layer,
        attention: type[nn.Module] = Attention,
        width: int = 32,
    ) -> None:
        super().__init__()
        self.embed = embeddings(50, 16, width)
        self.layers = nn.ModuleList(layer(width, attention) for _ in range(2))
        self.head = nn.Linear(width, 7)

    def forward(self, ids: torch.Tensor, keep: torch.Tensor) -> torch.Tensor:
        x = self.embed(ids)
        for layer in self.layers:
            x = layer(x, keep)
        return self.head(x)


def sentences() -> tuple[torch.Tensor, torch.Tensor]:
    """Two sentences of 12 words, each with padding at its end."""
    keep = torch.arange(12)[None] < torch.tensor([[9], [7]])
    return torch.randint(1, 50, (2, 12)) * keep, keep
