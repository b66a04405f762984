"""Three-armed spiral with a small fully connected net."""
import math

import torch
import torch.nn as nn

torch.manual_seed(0)


def make_spiral(n, classes=3):
    xs, ys = [], []
    for c in range(classes):
        t = torch.linspace(0.1, 1.0, n)
        angle = 2 * math.pi * (c / classes + 1.2 * t) + 0.15 * torch.randn(n)
        xs.append(torch.stack([t * angle.cos(), t * angle.sin()], dim=1))
        ys.append(torch.full((n,), c))
    return torch.cat(xs), torch.cat(ys)


class Net(nn.Module):
    def __init__(self, width=48, depth=3):
        super().__init__()
        self.inp = nn.Linear(2, width)
        self.hidden = [nn.Linear(width, width) for _ in range(depth)]
        self.out = nn.Linear(width, 3)

    def forward(self, x):
        x = torch.relu(self.inp(x))
        for layer in self.hidden:
            x = torch.relu(layer(x))
        return self.out(x)


X, Y = make_spiral(300)
net = Net()
criterion = nn.CrossEntropyLoss()
optimizer = torch.optim.Adam(net.parameters(), lr=3e-3)

for step in range(120):
    idx = torch.randint(0, len(X), (128,))
    optimizer.zero_grad()
    loss = criterion(net(X[idx]), Y[idx])
    loss.backward()
    optimizer.step()
    if step % 20 == 0:
        print(f"step {step:4d} loss {loss.item():.4f}")

with torch.no_grad():
    logits = net(X)
    print(f"final loss {criterion(logits, Y).item():.4f} acc {(logits.argmax(1) == Y).float().mean().item():.3f}")
torch.save(net.state_dict(), "spiral.pt")
