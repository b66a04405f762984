"""A dense layer turned into a mixture of experts: every expert begins as the trained dense one."""
import copy

import torch
import torch.nn as nn
import torch.nn.functional as F


class FeedForward(nn.Module):
    def __init__(self, dim, hidden):
        super().__init__()
        self.w1 = nn.Linear(dim, hidden)
        self.w2 = nn.Linear(hidden, dim)

    def forward(self, x):
        return self.w2(F.gelu(self.w1(x)))


class Mixture(nn.Module):
    def __init__(self, dense, dim, n):
        super().__init__()
        self.gate = nn.Linear(dim, n, bias=False)
        nn.init.zeros_(self.gate.weight)
        self.experts = nn.ModuleList([copy.deepcopy(dense) for _ in range(n)])

    def forward(self, x):
        g = torch.softmax(self.gate(x), -1)
        outs = torch.stack([e(x) for e in self.experts], -1)
        return (outs * g.unsqueeze(-2)).sum(-1)


class Net(nn.Module):
    def __init__(self, dim=8, hidden=4, classes=8):
        super().__init__()
        self.inp = nn.Linear(dim, dim)
        self.ff = FeedForward(dim, hidden)
        self.norm = nn.LayerNorm(dim)
        self.out = nn.Linear(dim, classes)

    def forward(self, x):
        h = self.inp(x)
        return self.out(self.norm(h + self.ff(h)))


torch.manual_seed(15)
centres = torch.randn(120, 8) * 1.6
labels = torch.arange(120) % 8


def dishes(n):
    k = torch.randint(0, 120, (n,))
    return centres[k] + 0.2 * torch.randn(n, 8), labels[k]


def train(net, steps, lr, stage):
    optimizer = torch.optim.Adam(net.parameters(), lr=lr)
    recent = []
    for step in range(steps):
        x, y = dishes(128)
        loss = F.cross_entropy(net(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        recent.append(loss.item())
        if step % 20 == 19:
            print(f"{stage} step {step + 1} loss {sum(recent[-10:]) / 10:.4f}")


net = Net()
train(net, 40, 5e-3, "dense")
net.ff = Mixture(net.ff, 8, 6)
train(net, 140, 1e-2, "mixture")
torch.save(net.state_dict(), "mixture.pt")
