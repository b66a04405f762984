"""Trains until it ends itself in a way that runs nothing any more."""

import os
import signal
import sys
import time

import torch
from torch import nn

model = nn.Linear(3, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for _ in range(4):
    optimizer.zero_grad()
    model(torch.ones(2, 3)).sum().backward()
    optimizer.step()
print("trained", flush=True)
if sys.argv[1] == "os._exit":
    os._exit(7)
time.sleep(2.5)
os.kill(os.getpid(), getattr(signal, sys.argv[1]))
time.sleep(5)
