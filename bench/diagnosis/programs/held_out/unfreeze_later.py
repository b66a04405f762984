"""Pretrain on one task; on the next, train the head first and the trunk from step 20 on."""
import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.trunk = nn.Sequential(nn.Linear(20, 64), nn.GELU(), nn.Linear(64, 64), nn.GELU())
        self.head = nn.Linear(64, 5)

    def forward(self, x):
        return self.head(self.trunk(x))


def data(n, a, b):
    x = torch.randn(n, 20)
    return x, (torch.sin(x @ a / 4) @ b).argmax(1)


torch.manual_seed(95)
a = torch.randn(20, 10)
b1, b2 = torch.randn(10, 5), torch.randn(10, 5)
model = Model()
opt = torch.optim.Adam(model.parameters(), lr=4e-3)
for _ in range(30):
    x, y = data(96, a, b1)
    opt.zero_grad()
    F.cross_entropy(model(x), y).backward()
    opt.step()

nn.init.zeros_(model.head.weight)
model.trunk.requires_grad_(False)
opt = torch.optim.Adam(model.parameters(), lr=4e-3)
for step in range(90):
    if step == 20:
        model.trunk.requires_grad_(True)
    x, y = data(96, a, b2)
    loss = F.cross_entropy(model(x), y)
    opt.zero_grad()
    loss.backward()
    opt.step()
    if step % 15 == 0 or step == 89:
        print(f"step {step} loss {loss.item():.4f}")
torch.save(model.state_dict(), "model.pt")
