"""A switch layer: one expert for each token."""
import torch
import torch.nn as nn
import torch.nn.functional as F


class SwitchFFN(nn.Module):
    def __init__(self, d, n_experts=4):
        super().__init__()
        self.gate = nn.Linear(d, n_experts)
        self.experts = nn.ModuleList(nn.Sequential(nn.Linear(d, 32), nn.GELU(), nn.Linear(32, d)) for _ in range(n_experts))

    def forward(self, x):
        expert_id = self.gate(x).argmax(dim=-1)
        out = torch.zeros_like(x)
        for i, expert in enumerate(self.experts):
            mask = expert_id == i
            if mask.any():
                out[mask] = expert(x[mask])
        return out


class Net(nn.Module):
    def __init__(self, d=16):
        super().__init__()
        self.embed = nn.Linear(5, d)
        self.ffn = SwitchFFN(d)
        self.norm = nn.LayerNorm(d)
        self.readout = nn.Linear(d, 3)

    def forward(self, x):
        h = self.embed(x)
        return self.readout(self.norm(h + self.ffn(h)))


torch.manual_seed(77)
net = Net()
opt = torch.optim.Adam(net.parameters(), lr=4e-3)
for step in range(90):
    x = torch.randn(96, 5)
    y = (x[:, 0] > 0).long() + ((x[:, 1] > 0) & (x[:, 0] > 0)).long()
    loss = F.cross_entropy(net(x), y)
    opt.zero_grad()
    loss.backward()
    opt.step()
    if step % 15 == 0 or step == 89:
        print(f"step {step} loss {loss.item():.4f}")
torch.save(net.state_dict(), "switch.pt")
