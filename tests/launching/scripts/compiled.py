"""Compiled by torch.compile before the optimizer is made, after it, in place, and after the first call."""

import hashlib
import sys

import torch
from torch import nn

how = sys.argv[1]
torch.manual_seed(4)
model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1))
called = model
if how == "before":
    called = torch.compile(model, backend="aot_eager")
optimizer = torch.optim.SGD((called if how == "before" else model).parameters(), lr=0.1)
if how == "after":
    called = torch.compile(model, backend="aot_eager")
if how == "in place":
    model.compile(backend="aot_eager")
for step in range(4):
    if how == "late" and step == 2:
        called = torch.compile(model, backend="aot_eager")
    optimizer.zero_grad()
    loss = called(torch.randn(8, 4)).square().mean()
    loss.backward()
    optimizer.step()
    print(f"{loss.item():.6f}")
print(hashlib.sha256(b"".join(p.detach().numpy().tobytes() for p in model.parameters())).hexdigest())
