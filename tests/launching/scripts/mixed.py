"""bfloat16 autocast with a GradScaler, gradients accumulated over two batches."""

import hashlib

import torch
from torch import nn

torch.manual_seed(6)
model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
scaler = torch.amp.GradScaler("cpu", init_scale=128.0)
for step in range(6):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = model(torch.randn(8, 4)).square().mean() / 2
    scaler.scale(loss).backward()
    if step % 2:
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()
print(scaler.get_scale())
print(hashlib.sha256(b"".join(p.detach().numpy().tobytes() for p in model.parameters())).hexdigest())
