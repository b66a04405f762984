"""Residual MLP that runs in half precision; weights are kept in single precision."""
import torch
import torch.nn as nn
import torch.nn.functional as F


class HalfBlock(nn.Module):
    def __init__(self, d, gain):
        super().__init__()
        self.fc1 = nn.Linear(d, 2 * d)
        self.fc2 = nn.Linear(2 * d, d)
        self.gain = gain

    def forward(self, x):
        h = F.relu(F.linear(x, self.fc1.weight.half(), self.fc1.bias.half()))
        h = F.linear(h, self.fc2.weight.half(), self.fc2.bias.half())
        return x + self.gain * h


class HalfNet(nn.Module):
    def __init__(self, d=24, depth=6):
        super().__init__()
        self.inp = nn.Linear(8, d)
        self.blocks = nn.ModuleList(HalfBlock(d, 8.0) for _ in range(depth))
        self.norm = nn.LayerNorm(d)
        self.out = nn.Linear(d, 4)

    def forward(self, x):
        x = self.inp(x * 20).half()
        for block in self.blocks:
            x = block(x)
        return self.out(self.norm(x.float()))


torch.manual_seed(6)
A = torch.randn(8, 4)
net = HalfNet()
opt = torch.optim.Adam(net.parameters(), lr=2e-3)
for step in range(80):
    x = torch.randn(48, 8)
    y = (x @ A).argmax(1)
    loss = F.cross_entropy(net(x), y)
    opt.zero_grad()
    loss.backward()
    opt.step()
    if step % 8 == 0 or step == 79:
        print(f"step {step} loss {loss.item():.4f}")
torch.save(net.state_dict(), "half.pt")
