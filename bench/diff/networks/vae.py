"""A conditional VAE: the decoder is told the class."""

from __future__ import annotations

import torch
from torch import nn


class Vae(nn.Module):
    """Images and labels to images, mean and log-variance."""

    def __init__(self, width: int = 32, latent: int = 6) -> None:
        super().__init__()
        self.enter = nn.Sequential(nn.Linear(64, width), nn.ReLU())
        self.mean = nn.Linear(width, latent)
        self.logvar = nn.Linear(width, latent)
        self.label = nn.Embedding(10, latent)
        self.decode = nn.Sequential(nn.Linear(2 * latent, width), nn.ReLU(), nn.Linear(width, 64))

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        h = self.enter(x)
        mean, logvar = self.mean(h), self.logvar(h)
        z = mean + torch.randn_like(mean) * (0.5 * logvar).exp()
        return self.decode(torch.cat([z, self.label(y)], dim=-1)).sigmoid(), mean, logvar


def digits() -> tuple[torch.Tensor, torch.Tensor]:
    return torch.rand(5, 64), torch.randint(1, 10, (5,))
