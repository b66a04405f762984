"""A deep classifier on concentric rings, micro batches of 32 that make a batch of 128."""
import torch
from torch import nn

torch.manual_seed(5)
ACCUMULATE = 4


def rings(n):
    r = torch.randint(0, 3, (n,))
    angle = torch.rand(n) * 6.2832
    radius = 0.5 + r * 0.7 + 0.1 * torch.randn(n)
    return torch.stack([radius * angle.cos(), radius * angle.sin()], 1), r


class Deep(nn.Module):
    def __init__(self, depth=7, width=64):
        super().__init__()
        sizes = [2] + [width] * depth
        self.blocks = nn.ModuleList(
            nn.Sequential(nn.Linear(a, b), nn.ReLU()) for a, b in zip(sizes, sizes[1:])
        )
        self.head = nn.Linear(width, 3)
        for block in self.blocks:
            nn.init.kaiming_normal_(block[0].weight, nonlinearity="relu")

    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        return self.head(x)


model = Deep()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
loss_fn = nn.CrossEntropyLoss()
for step in range(70):
    optimizer.zero_grad()
    total = 0.0
    for _ in range(ACCUMULATE):
        x, y = rings(32)
        loss = loss_fn(model(x), y) / ACCUMULATE
        loss.backward()
        total += loss.item()
    optimizer.step()
    if step % 10 == 0 or step == 69:
        print(f"{step}: loss {total:.4f}")
torch.save(model.state_dict(), "rings.pt")
