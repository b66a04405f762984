"""A graph network by hand: messages along edges, added up where they arrive."""

from __future__ import annotations

import torch
from torch import nn


class Convolution(nn.Module):
    """Kipf and Welling's: a message is divided by the roots of both degrees; a node has one for itself."""

    def __init__(self, inside: int, outside: int) -> None:
        super().__init__()
        self.linear = nn.Linear(inside, outside, bias=False)
        self.bias = nn.Parameter(torch.zeros(outside))

    def forward(self, x: torch.Tensor, edges: torch.Tensor) -> torch.Tensor:
        loops = torch.arange(len(x))
        source, target = torch.cat([edges, torch.stack([loops, loops])], dim=1)
        degree = torch.zeros(len(x)).index_add(0, target, torch.ones(len(target)))
        share = (degree[source] * degree[target]).rsqrt()
        out = self.linear(x)
        return torch.zeros_like(out).index_add(0, target, out[source] * share[:, None]) + self.bias


class GraphNet(nn.Module):
    """Nodes and edges to a class of each node."""

    def __init__(self, convolution: type[nn.Module] = Convolution) -> None:
        super().__init__()
        self.conv1 = convolution(6, 16)
        self.conv2 = convolution(16, 16)
        self.fc = nn.Linear(16, 3)

    def forward(self, x: torch.Tensor, edges: torch.Tensor) -> torch.Tensor:
        x = self.conv1(x, edges).relu()
        return self.fc(self.conv2(x, edges).relu())


def graph() -> tuple[torch.Tensor, torch.Tensor]:
    """20 nodes and 60 edges that have a direction."""
    return torch.randn(20, 6), torch.randint(0, 20, (2, 60))
