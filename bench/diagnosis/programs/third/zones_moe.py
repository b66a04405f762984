"""Noisy top-2 mixture of experts with a balancing loss; more experts than the data has zones."""
import torch
import torch.nn as nn
import torch.nn.functional as F


class Expert(nn.Module):
    def __init__(self, dim, hidden):
        super().__init__()
        self.up, self.down = nn.Linear(dim, hidden), nn.Linear(hidden, dim)

    def forward(self, x):
        return self.down(F.relu(self.up(x)))


class SparseMoE(nn.Module):
    def __init__(self, dim, hidden=24, n_experts=10, k=2):
        super().__init__()
        self.experts = nn.ModuleList(Expert(dim, hidden) for _ in range(n_experts))
        self.gate = nn.Linear(dim, n_experts, bias=False)
        self.noise = nn.Linear(dim, n_experts, bias=False)
        nn.init.zeros_(self.gate.weight)
        nn.init.zeros_(self.noise.weight)
        self.k = k

    def forward(self, x):
        logits = self.gate(x)
        if self.training:
            logits = logits + torch.randn_like(logits) * F.softplus(self.noise(x))
        top, index = logits.topk(self.k, dim=-1)
        gates = torch.zeros_like(logits).scatter(1, index, top.softmax(-1))
        out = torch.zeros_like(x)
        for i, expert in enumerate(self.experts):
            rows = (gates[:, i] > 0).nonzero(as_tuple=True)[0]
            if len(rows):
                out = out.index_add(0, rows, gates[rows, i:i + 1] * expert(x[rows]))
        importance = gates.sum(0)
        balance = importance.var() / (importance.mean() ** 2 + 1e-10)
        return out, balance


class ZoneModel(nn.Module):
    def __init__(self, dim=16):
        super().__init__()
        self.embed = nn.Linear(4, dim)
        self.moe = SparseMoE(dim)
        self.norm = nn.LayerNorm(dim)
        self.head = nn.Linear(dim, 1)

    def forward(self, x):
        h = torch.tanh(self.embed(x))
        mixed, balance = self.moe(h)
        return self.head(self.norm(h + mixed)).squeeze(1), balance


def zones(n):
    x = torch.randn(n, 4)
    zone = (x[:, 0] > 0).long() * 2 + (x[:, 1] > 0).long()
    w = torch.tensor([[1.0, -1.0], [-1.0, 1.0], [1.5, 0.5], [-0.5, -1.5]])
    return x, (w[zone] * x[:, 2:]).sum(1)


torch.manual_seed(50)
model = ZoneModel()
opt = torch.optim.Adam(model.parameters(), lr=5e-3)
running = 0.0
for step in range(1, 201):
    x, y = zones(32)
    pred, balance = model(x)
    mse = F.mse_loss(pred, y)
    loss = mse + 0.01 * balance
    opt.zero_grad()
    loss.backward()
    opt.step()
    running += mse.item()
    if step % 25 == 0:
        print(f"{step} mse {running / 25:.4f} balance {balance.item():.3f}")
        running = 0.0
torch.save(model.state_dict(), "moe.pt")
