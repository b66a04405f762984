"""BYOL on noisy crops of one-dimensional signals, with a linear probe."""
import copy

import torch
import torch.nn as nn
import torch.nn.functional as F


def mlp(i, h, o):
    return nn.Sequential(nn.Linear(i, h), nn.BatchNorm1d(h), nn.ReLU(), nn.Linear(h, o))


class BYOL(nn.Module):
    def __init__(self, inp=32, dim=32):
        super().__init__()
        self.online = nn.Sequential(mlp(inp, 64, dim), mlp(dim, 64, dim))
        self.predictor = mlp(dim, 64, dim)
        self.target = copy.deepcopy(self.online)
        self.target.requires_grad_(False)

    @torch.no_grad()
    def momentum_update(self, tau=0.97):
        for o, t in zip(self.online.parameters(), self.target.parameters()):
            t.lerp_(o, 1 - tau)

    def half(self, a, b):
        p = self.predictor(self.online(a))
        with torch.no_grad():
            z = self.target(b)
        return 2 - 2 * F.cosine_similarity(p, z, dim=-1).mean()

    def forward(self, a, b):
        return (self.half(a, b) + self.half(b, a)) / 2


torch.manual_seed(21)
basis = torch.randn(6, 32)


def crops(n):
    content = torch.randn(n, 6)
    clean = content @ basis
    return clean + 0.5 * torch.randn(n, 32), clean + 0.5 * torch.randn(n, 32)


model = BYOL()
opt = torch.optim.Adam([*model.online.parameters(), *model.predictor.parameters()], lr=2e-3)
for step in range(120):
    loss = model(*crops(128))
    opt.zero_grad()
    loss.backward()
    opt.step()
    model.momentum_update()
    if step % 20 == 0 or step == 119:
        print(f"step {step} loss {loss.item():.4f}")
torch.save(model.state_dict(), "byol.pt")
