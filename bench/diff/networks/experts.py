"""A mixture of experts: two of four for each token, and a second loss that keeps them evenly used."""

from __future__ import annotations

import torch
from torch import nn


class Expert(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.fc1 = nn.Linear(width, 2 * width)
        self.fc2 = nn.Linear(2 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.fc2(self.fc1(x).relu())


class Mixture(nn.Module):
    """Each expert sees only the tokens that chose it; the shares of the chosen ones add up to one."""

    def __init__(self, width: int, experts: int = 4) -> None:
        super().__init__()
        self.gate = nn.Linear(width, experts, bias=False)
        self.experts = nn.ModuleList(Expert(width) for _ in range(experts))

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        shares = self.gate(x).softmax(-1)
        best, chosen = shares.topk(2, dim=-1)
        best = best / best.sum(-1, keepdim=True)
        return self.mixed(x, best, chosen), self.unevenness(shares, chosen)

    def mixed(self, x: torch.Tensor, best: torch.Tensor, chosen: torch.Tensor) -> torch.Tensor:
        out = torch.zeros_like(x)
        for number, expert in enumerate(self.experts):
            rows, places = torch.where(chosen == number)
            out = out.index_add(0, rows, expert(x[rows]) * best[rows, places, None])
        return out

    def unevenness(self, shares: torch.Tensor, chosen: torch.Tensor) -> torch.Tensor:
        used = nn.functional.one_hot(chosen, len(self.experts)).float().mean((0, 1))
        return len(self.experts) * (used * shares.mean(0)).sum()


class Sparse(nn.Module):
    """Tokens and labels to logits and a loss."""

    def __init__(self, mixture: type[nn.Module] = Mixture, evenness: float = 0.1, width: int = 16) -> None:
        super().__init__()
        self.evenness = evenness
        self.embed = nn.Embedding(50, width)
        self.moe1 = mixture(width)
        self.moe2 = mixture(width)
        self.head = nn.Linear(width, 9)

    def forward(self, ids: torch.Tensor, labels: torch.Tensor) -> dict[str, torch.Tensor]:
        x = self.embed(ids)
        one, uneven1 = self.moe1(x)
        two, uneven2 = self.moe2(x + one)
        logits = self.head(x + one + two)
        loss = nn.functional.cross_entropy(logits, labels) + self.evenness * (uneven1 + uneven2)
        return {"logits": logits, "loss": loss}


def tokens() -> tuple[torch.Tensor, torch.Tensor]:
    return torch.randint(0, 50, (24,)), torch.randint(0, 9, (24,))
