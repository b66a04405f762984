"""Momentum contrast on short synthetic songs."""
import copy

import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(41)
MOMENTUM, TEMPERATURE, STEPS = 0.95, 0.2, 100


class SongEncoder(nn.Module):
    def __init__(self, dim=16):
        super().__init__()
        self.conv = nn.Sequential(
            nn.Conv1d(1, 16, 7, stride=2, padding=3), nn.ReLU(),
            nn.Conv1d(16, 32, 5, stride=2, padding=2), nn.ReLU(),
            nn.Conv1d(32, 32, 3, stride=2, padding=1), nn.ReLU(),
        )
        self.fc = nn.Linear(32, dim)

    def forward(self, x):
        return self.fc(self.conv(x).mean(-1))


class MoCo(nn.Module):
    def __init__(self, base):
        super().__init__()
        self.encoder = base
        self.key_encoder = base
        for p in self.key_encoder.parameters():
            p.requires_grad = False
        self.predictor = nn.Linear(16, 16)

    @torch.no_grad()
    def update_keys(self):
        for q, k in zip(self.encoder.parameters(), self.key_encoder.parameters()):
            k.mul_(MOMENTUM).add_(q, alpha=1 - MOMENTUM)

    def forward(self, a, b):
        q = F.normalize(self.predictor(self.encoder(a)), dim=1)
        with torch.no_grad():
            k = F.normalize(self.key_encoder(b), dim=1)
        return q @ k.t() / TEMPERATURE


def songs(n, length=64):
    t = torch.arange(length) / length
    freq = torch.rand(n, 1) * 20 + 2
    sweep = torch.rand(n, 1) * 10 - 5

    def view():
        wave = torch.sin(6.283 * (freq * t + sweep * t * t + torch.rand(n, 1)))
        return (wave + 0.2 * torch.randn(n, length)).unsqueeze(1)

    return view(), view()


model = MoCo(SongEncoder())
optimizer = torch.optim.Adam([p for p in model.parameters() if p.requires_grad], lr=4e-3)
history = []
for step in range(STEPS):
    a, b = songs(64)
    logits = model(a, b)
    loss = F.cross_entropy(logits, torch.arange(64))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    model.update_keys()
    history.append(loss.item())
    if (step + 1) % 20 == 0:
        print("step", step + 1, "loss", round(sum(history[-20:]) / 20, 4))
best = copy.deepcopy(model.state_dict())
torch.save(best, "moco.pt")
