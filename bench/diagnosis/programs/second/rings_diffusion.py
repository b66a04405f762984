"""Denoising diffusion on points of two rings."""
import math

import torch
import torch.nn as nn

torch.manual_seed(12)
TIMES, STEPS, WARMUP, BASE_LR = 50, 180, 20, 4e-3
betas = torch.linspace(1e-3, 0.12, TIMES)
alpha_bar = torch.cumprod(1 - betas, 0)


class Denoiser(nn.Module):
    def __init__(self, width=96):
        super().__init__()
        self.time = nn.Embedding(TIMES, 24)
        self.inp = nn.Linear(2 + 24, width)
        self.mid = nn.Linear(width, width)
        self.out = nn.Linear(width, 2)
        self.act = nn.SiLU()

    def forward(self, x, t):
        h = self.act(self.inp(torch.cat([x, self.time(t)], 1)))
        h = h + self.act(self.mid(h))
        return self.out(h)


def rings(n):
    angle = torch.rand(n) * 2 * math.pi
    radius = 0.5 + (torch.rand(n) < 0.5).float()
    return torch.stack([radius * angle.cos(), radius * angle.sin()], 1) + 0.02 * torch.randn(n, 2)


def schedule(step):
    if step < WARMUP:
        return BASE_LR * (step + 1) / WARMUP
    done = (step - WARMUP) / (STEPS - WARMUP)
    return BASE_LR * 0.5 * (1 + math.cos(math.pi * done))


model = Denoiser()
optimizer = torch.optim.Adam(model.parameters(), lr=BASE_LR)
scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, schedule)
running = None
for step in range(STEPS):
    x0 = rings(256)
    t = torch.randint(0, TIMES, (256,))
    noise = torch.randn_like(x0)
    a = alpha_bar[t].unsqueeze(1)
    pred = model(a.sqrt() * x0 + (1 - a).sqrt() * noise, t)
    loss = (pred - noise).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    scheduler.step()
    running = loss.item() if running is None else 0.9 * running + 0.1 * loss.item()
    if step % 30 == 0 or step == STEPS - 1:
        print("step", step, "loss %.4f" % running)
torch.save(model.state_dict(), "denoiser.pt")
