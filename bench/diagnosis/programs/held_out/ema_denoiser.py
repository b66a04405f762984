"""Learn to remove noise; an average of the weights is kept for sampling."""
import copy

import torch
import torch.nn as nn


class Denoiser(nn.Module):
    def __init__(self, d=16):
        super().__init__()
        self.time = nn.Linear(1, 32)
        self.inp = nn.Linear(d, 32)
        self.mid = nn.Linear(32, 32)
        self.out = nn.Linear(32, d)

    def forward(self, x, t):
        h = torch.tanh(self.inp(x) + self.time(t))
        return self.out(torch.tanh(self.mid(h)))


class EMA:
    def __init__(self, model, decay=0.9):
        self.decay = decay
        self.shadow = copy.deepcopy(model)

    @torch.no_grad()
    def update(self, model):
        for s, p in zip(self.shadow.parameters(), model.parameters()):
            s.mul_(self.decay).add_(p, alpha=1 - self.decay)


def clean(n):
    k = torch.arange(16) / 16
    return torch.sin(6.28 * (k + torch.rand(n, 1)))


torch.manual_seed(92)
net = Denoiser()
ema = EMA(net)
optimizer = torch.optim.Adam(ema.shadow.parameters(), lr=5e-3)
for step in range(90):
    x0 = clean(64)
    t = torch.rand(64, 1)
    noise = torch.randn_like(x0)
    xt = (1 - t) * x0 + t * noise
    loss = (net(xt, t) - noise).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    ema.update(net)
    if step % 15 == 0 or step == 89:
        print(f"step {step} loss {loss.item():.4f}")
torch.save(ema.shadow.state_dict(), "ema.pt")
