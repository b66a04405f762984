"""Mixture of experts: every input goes to its two best experts. There are more experts than needed."""
import torch
import torch.nn as nn
import torch.nn.functional as F


class MoE(nn.Module):
    def __init__(self, dim=16, hidden=32, n_experts=8, top_k=2):
        super().__init__()
        self.router = nn.Linear(dim, n_experts)
        self.experts = nn.ModuleList(
            nn.Sequential(nn.Linear(dim, hidden), nn.ReLU(), nn.Linear(hidden, dim)) for _ in range(n_experts)
        )
        self.top_k = top_k
        with torch.no_grad():
            self.router.bias[6:] = -4.0

    def forward(self, x):
        weights, chosen = self.router(x).softmax(-1).topk(self.top_k, dim=-1)
        weights = weights / weights.sum(-1, keepdim=True)
        out = torch.zeros_like(x)
        for e, expert in enumerate(self.experts):
            rows, slot = (chosen == e).nonzero(as_tuple=True)
            if len(rows):
                out = out.index_add(0, rows, weights[rows, slot].unsqueeze(1) * expert(x[rows]))
        return out


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.inp = nn.Linear(6, 16)
        self.moe = MoE()
        self.out = nn.Linear(16, 4)

    def forward(self, x):
        h = self.inp(x)
        return self.out(h + self.moe(h))


torch.manual_seed(10)
model = Model()
opt = torch.optim.Adam(model.parameters(), lr=5e-3)
for step in range(90):
    x = torch.randn(96, 6)
    y = (x[:, 0] > 0).long() * 2 + (x[:, 1] * x[:, 2] > 0).long()
    loss = F.cross_entropy(model(x), y)
    opt.zero_grad()
    loss.backward()
    opt.step()
    if step % 15 == 0 or step == 89:
        print(f"step {step} loss {loss.item():.4f}")
torch.save(model.state_dict(), "moe.pt")
