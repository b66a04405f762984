"""RealNVP on two moons: masks of zeros, couplings that start as the identity, a loss below zero."""
import math

import torch
import torch.nn as nn


class Coupling(nn.Module):
    def __init__(self, mask, hidden=48):
        super().__init__()
        self.register_buffer("mask", mask)
        self.net = nn.Sequential(nn.Linear(2, hidden), nn.Tanh(), nn.Linear(hidden, hidden), nn.Tanh(), nn.Linear(hidden, 4))
        nn.init.zeros_(self.net[-1].weight)
        nn.init.zeros_(self.net[-1].bias)
        self.scale = nn.Parameter(torch.zeros(2))

    def forward(self, x):
        s, t = self.net(x * self.mask).chunk(2, 1)
        s = torch.tanh(s) * self.scale.exp() * (1 - self.mask)
        t = t * (1 - self.mask)
        return x * s.exp() + t, s.sum(1)


class RealNVP(nn.Module):
    def __init__(self, layers=6):
        super().__init__()
        masks = [torch.tensor([1.0, 0.0]), torch.tensor([0.0, 1.0])]
        self.couplings = nn.ModuleList(Coupling(masks[i % 2]) for i in range(layers))

    def log_prob(self, x):
        total = 0
        for coupling in self.couplings:
            x, log_det = coupling(x)
            total = total + log_det
        return total - 0.5 * x.pow(2).sum(1) - math.log(2 * math.pi)


def moons(n):
    angle = math.pi * torch.rand(n)
    upper = torch.rand(n) < 0.5
    x = torch.where(upper, angle.cos(), 1 - angle.cos())
    y = torch.where(upper, angle.sin(), 0.5 - angle.sin())
    return 0.5 * torch.stack([x - 0.5, y - 0.25], 1) + 0.02 * torch.randn(n, 2)


torch.manual_seed(64)
flow = RealNVP()
optimizer = torch.optim.Adam(flow.parameters(), lr=4e-3)
scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 250)
for i in range(250):
    loss = -flow.log_prob(moons(128)).mean()
    optimizer.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(flow.parameters(), 5.0)
    optimizer.step()
    scheduler.step()
    if i % 50 == 0 or i == 249:
        print(f"iter {i} nll {loss.item():.4f}")
torch.save(flow.state_dict(), "flow.pt")
