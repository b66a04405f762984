"""An encoder and a decoder on torch's MultiheadAttention, pre-norm."""

from __future__ import annotations

import torch
from torch import nn


class EncoderLayer(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.attn = nn.MultiheadAttention(width, 4, batch_first=True)
        self.norm1 = nn.LayerNorm(width)
        self.fc1 = nn.Linear(width, 2 * width)
        self.fc2 = nn.Linear(2 * width, width)
        self.norm2 = nn.LayerNorm(width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = self.norm1(x)
        x = x + self.attn(h, h, h, need_weights=False)[0]
        return x + self.fc2(self.fc1(self.norm2(x)).relu())


class DecoderLayer(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.self_attn = nn.MultiheadAttention(width, 4, batch_first=True)
        self.norm1 = nn.LayerNorm(width)
        self.cross_attn = nn.MultiheadAttention(width, 4, batch_first=True)
        self.norm2 = nn.LayerNorm(width)
        self.fc1 = nn.Linear(width, 2 * width)
        self.fc2 = nn.Linear(2 * width, width)
        self.norm3 = nn.LayerNorm(width)

    def forward(self, x: torch.Tensor, memory: torch.Tensor, future: torch.Tensor) -> torch.Tensor:
        h = self.norm1(x)
        x = x + self.self_attn(h, h, h, attn_mask=future, need_weights=False)[0]
        h = self.norm2(x)
        x = x + self.cross_attn(h, memory, memory, need_weights=False)[0]
        return x + self.fc2(self.fc1(self.norm3(x)).relu())


class Encoder(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.embed = nn.Embedding(50, width)
        self.layers = nn.ModuleList(EncoderLayer(width) for _ in range(2))
        self.norm = nn.LayerNorm(width)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        x = self.embed(ids)
        for layer in self.layers:
            x = layer(x)
        return self.norm(x)


class Decoder(nn.Module):
    def __init__(self, width: int, layer: type[nn.Module]) -> None:
        super().__init__()
        self.embed = nn.Embedding(50, width)
        self.layers = nn.ModuleList(layer(width) for _ in range(2))
        self.norm = nn.LayerNorm(width)

    def forward(self, ids: torch.Tensor, memory: torch.Tensor) -> torch.Tensor:
        future = torch.ones(ids.shape[1], ids.shape[1], dtype=torch.bool).triu(1)
        x = self.embed(ids)
        for layer in self.layers:
            x = layer(x, memory, future)
        return self.norm(x)


class Translator(nn.Module):
    """Source and target to logits; the target is shifted by one, behind a token that starts it."""

    def __init__(
        self, encoder: type[nn.Module] = Encoder, layer: type[nn.Module] = DecoderLayer, start: int = 1
    ) -> None:
        super().__init__()
        width = 32
        self.start = start
        self.encoder = encoder(width)
        self.decoder = Decoder(width, layer)
        self.head = nn.Linear(width, 50)

    def forward(self, source: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        shifted = torch.cat([torch.full_like(target[:, :1], self.start), target[:, :-1]], dim=1)
        return self.head(self.decoder(shifted, self.encoder(source)))


def languages() -> dict[str, torch.Tensor]:
    """A source and a target of the same length, by name."""
    return {"source": torch.randint(3, 50, (2, 10)), "target": torch.randint(3, 50, (2, 10))}
