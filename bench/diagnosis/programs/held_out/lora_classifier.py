"""Adapt a small classifier to new data with low-rank adapters."""
import math

import torch
import torch.nn as nn
import torch.nn.functional as F


class Adapter(nn.Module):
    def __init__(self, linear, r=4):
        super().__init__()
        self.linear = linear
        self.linear.requires_grad_(False)
        self.A = nn.Parameter(torch.zeros(r, linear.in_features))
        self.B = nn.Parameter(torch.zeros(linear.out_features, r))

    def forward(self, x):
        return self.linear(x) + 2.0 * (x @ self.A.t()) @ self.B.t()


class Classifier(nn.Module):
    def __init__(self):
        super().__init__()
        self.q_proj = nn.Linear(16, 48)
        self.v_proj = nn.Linear(48, 48)
        self.score = nn.Linear(48, 5)

    def forward(self, x):
        return self.score(torch.tanh(self.v_proj(torch.tanh(self.q_proj(x)))))


def data(n, centres):
    y = torch.randint(0, 5, (n,))
    return centres[y] + 0.7 * torch.randn(n, 16), y


def steps(model, params, centres, n, say):
    opt = torch.optim.Adam(params, lr=5e-3)
    for i in range(n):
        x, y = data(64, centres)
        loss = F.cross_entropy(model(x), y)
        opt.zero_grad()
        loss.backward()
        opt.step()
        if say and (i % 15 == 0 or i == n - 1):
            print(f"adapter step {i} loss {loss.item():.4f}")


torch.manual_seed(47)
old, new = torch.randn(5, 16), torch.randn(5, 16)
model = Classifier()
steps(model, model.parameters(), old, 40, say=False)
model.requires_grad_(False)
model.q_proj = Adapter(model.q_proj)
model.v_proj = Adapter(model.v_proj)
steps(model, [p for p in model.parameters() if p.requires_grad], new, 75, say=True)
torch.save(model.state_dict(), "adapted.pt")
