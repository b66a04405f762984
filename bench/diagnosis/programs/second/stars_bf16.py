"""Light curves: a temporal convolution net that lives in half the memory."""
import argparse

import torch
import torch.nn as nn
import torch.nn.functional as F


class TCNBlock(nn.Module):
    def __init__(self, c, dilation):
        super().__init__()
        self.pad = 2 * dilation
        self.conv = nn.Conv1d(c, c, 3, dilation=dilation)
        self.norm = nn.LayerNorm(c)

    def forward(self, x):
        h = self.conv(F.pad(x, (self.pad, 0)))
        h = self.norm(h.transpose(1, 2)).transpose(1, 2)
        return x + F.silu(h)


class TCN(nn.Module):
    def __init__(self, c=24, classes=5):
        super().__init__()
        self.stem = nn.Conv1d(1, c, 5, padding=2)
        self.blocks = nn.Sequential(*[TCNBlock(c, 2**i) for i in range(3)])
        self.head = nn.Linear(c, classes)

    def forward(self, x):
        return self.head(self.blocks(self.stem(x)).mean(-1))


def curves(n, length=48):
    y = torch.randint(0, 5, (n,))
    t = torch.arange(length) / length
    phase = torch.rand(n, 1) * 6.283
    wave = torch.sin(6.283 * (2 + 3 * y.unsqueeze(1)) * t + phase)
    return (wave + 0.3 * torch.randn(n, length)).unsqueeze(1), y


parser = argparse.ArgumentParser()
parser.add_argument("--precision", choices=["float32", "bfloat16"], default="bfloat16")
parser.add_argument("--lr", type=float, default=2e-4)
parser.add_argument("--steps", type=int, default=150)
opts = parser.parse_args()

torch.manual_seed(71)
dtype = getattr(torch, opts.precision)
model = TCN().to(dtype)
optimizer = torch.optim.AdamW(model.parameters(), lr=opts.lr, weight_decay=0.0)
for step in range(opts.steps):
    x, y = curves(48)
    loss = F.cross_entropy(model(x.to(dtype)).float(), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 25 == 0 or step == opts.steps - 1:
        print(f"step {step} loss {loss.item():.4f}")
torch.save(model.state_dict(), "tcn.pt")
