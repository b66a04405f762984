"""A deep classifier on concentric rings."""
import torch
from torch import nn

torch.manual_seed(0)


def rings(n):
    r = torch.randint(0, 3, (n,))
    angle = torch.rand(n) * 6.2832
    radius = 0.5 + r * 0.7 + 0.1 * torch.randn(n)
    return torch.stack([radius * angle.cos(), radius * angle.sin()], 1), r


class Deep(nn.Module):
    def __init__(self, depth=10, width=32):
        super().__init__()
        sizes = [2] + [width] * depth
        self.blocks = nn.ModuleList(
            nn.Sequential(nn.Linear(a, b), nn.Sigmoid()) for a, b in zip(sizes, sizes[1:])
        )
        self.head = nn.Linear(width, 3)

    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        return self.head(x)


model = Deep()
optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
loss_fn = nn.CrossEntropyLoss()
for step in range(120):
    x, y = rings(128)
    loss = loss_fn(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 20 == 0 or step == 119:
        print(f"{step}: loss {loss.item():.4f}")
torch.save(model.state_dict(), "rings.pt")
