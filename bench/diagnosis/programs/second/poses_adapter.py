"""Bottleneck adapters, zero at first, in a transformer that is otherwise frozen but for its norms."""
import torch
import torch.nn as nn
import torch.nn.functional as F

D = 32


class Adapter(nn.Module):
    def __init__(self, dim, r=4):
        super().__init__()
        self.down = nn.Linear(dim, r)
        self.up = nn.Linear(r, dim)
        nn.init.zeros_(self.up.weight)
        nn.init.zeros_(self.up.bias)

    def forward(self, x):
        return x + self.up(F.relu(self.down(x)))


class PoseNet(nn.Module):
    def __init__(self, joints=10):
        super().__init__()
        self.inp = nn.Linear(3, D)
        self.joint = nn.Parameter(0.3 * torch.randn(joints, D))
        self.layers = nn.ModuleList(
            nn.TransformerEncoderLayer(D, 4, 64, 0.0, batch_first=True, norm_first=True) for _ in range(2)
        )
        self.adapters = nn.ModuleList(nn.Identity() for _ in range(2))
        self.head = nn.Linear(D, 4)

    def forward(self, x):
        h = self.inp(x) + self.joint
        for layer, adapter in zip(self.layers, self.adapters):
            h = adapter(layer(h))
        return self.head(h.mean(1))


def poses(protos, n):
    y = torch.randint(0, 4, (n,))
    return protos[y] + 0.5 * torch.randn(n, 10, 3), y


def fit(model, params, protos, steps, lr, title):
    opt = torch.optim.AdamW(params, lr=lr)
    for step in range(steps):
        x, y = poses(protos, 48)
        loss = F.cross_entropy(model(x), y)
        opt.zero_grad()
        loss.backward()
        opt.step()
        if step % 20 == 0 or step == steps - 1:
            print(f"{title} step {step} loss {loss.item():.4f}")


torch.manual_seed(66)
first, second = torch.randn(2, 4, 10, 3).unbind(0)
model = PoseNet()
fit(model, model.parameters(), first, 40, 3e-3, "base")

model.requires_grad_(False)
model.adapters = nn.ModuleList(Adapter(D) for _ in range(2))
for name, p in model.named_parameters():
    if "norm" in name or "adapters" in name:
        p.requires_grad_(True)
fit(model, [p for p in model.parameters() if p.requires_grad], second, 100, 8e-3, "adapter")
torch.save(model.state_dict(), "poses.pt")
