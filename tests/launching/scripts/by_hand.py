"""An optimizer that is three lines of this file."""

import hashlib

import torch
from torch import nn

torch.manual_seed(8)
model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1))
for _ in range(5):
    loss = model(torch.randn(8, 4)).square().mean()
    model.zero_grad()
    loss.backward()
    for p in model.parameters():
        p.data -= 0.1 * p.grad
    print(f"{loss.item():.6f}")
print(hashlib.sha256(b"".join(p.detach().numpy().tobytes() for p in model.parameters())).hexdigest())
