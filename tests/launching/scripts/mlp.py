"""An MLP with dropout, whose weights at the end tell whether anything touched the random numbers."""

import hashlib

import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Dropout(0.3), nn.Linear(16, 2))
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
for _ in range(6):
    x = torch.randn(16, 8)
    optimizer.zero_grad()
    loss = nn.functional.cross_entropy(model(x), (x.sum(1) > 0).long())
    loss.backward()
    optimizer.step()
    print(f"loss {loss.item():.6f}")
print(hashlib.sha256(b"".join(p.detach().numpy().tobytes() for p in model.parameters())).hexdigest())
