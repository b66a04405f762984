"""A thread trains on when the script is at its end, and atexit has the last word."""

import atexit
import hashlib
import threading
import time

import torch
from torch import nn

torch.manual_seed(11)
model = nn.Linear(3, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)


def train():
    for _ in range(3):
        time.sleep(0.05)
        optimizer.zero_grad()
        model(torch.ones(2, 3)).sum().backward()
        optimizer.step()
    print("trained", flush=True)


@atexit.register
def last():
    print(hashlib.sha256(b"".join(p.detach().numpy().tobytes() for p in model.parameters())).hexdigest())


threading.Thread(target=train).start()
print("at the end", flush=True)
