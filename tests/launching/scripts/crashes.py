"""Errors that come up in a forward, in a backward, in an optimizer's making, in a closure; and a caught one."""

import sys

import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(4, 8), nn.ReLU())
        self.head = nn.Linear(9, 2)

    def forward(self, x):
        return self.head(self.encoder(x))


where = sys.argv[1]
net = Net()
if where == "making":
    torch.optim.SGD(net.parameters(), lr=-1.0)
if where == "empty":
    torch.optim.SGD([], lr=1.0)
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
print("begins", flush=True)
if where == "forward":
    net(torch.ones(3, 4))
if where == "chained":
    try:
        net(torch.ones(3, 4))
    except RuntimeError as error:
        raise ValueError("it does not fit") from error
if where == "backward":
    output = net.encoder(torch.ones(3, 4))
    output.sum().backward()
    output.sum().backward()
if where == "closure":
    optimizer.step(lambda: net(torch.ones(3, 4)))
if where == "told":
    try:
        net(torch.ones(3, 4))
    except RuntimeError as error:
        sys.exit(f"no luck: {error}")
