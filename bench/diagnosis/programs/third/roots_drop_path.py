"""Stochastic depth and checkpointed blocks: a block is skipped at random, and computed twice where it is not."""
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.checkpoint import checkpoint


class DropPath(nn.Module):
    def __init__(self, p):
        super().__init__()
        self.p = p

    def forward(self, x):
        if not self.training or self.p == 0:
            return x
        keep = (torch.rand(len(x), 1, 1, 1) >= self.p).float()
        return x * keep / (1 - self.p)


class ConvNeXtBlock(nn.Module):
    def __init__(self, dim, drop, layer_scale=1e-2):
        super().__init__()
        self.dwconv = nn.Conv2d(dim, dim, 5, padding=2, groups=dim)
        self.norm = nn.LayerNorm(dim)
        self.pwconv1 = nn.Linear(dim, 3 * dim)
        self.pwconv2 = nn.Linear(3 * dim, dim)
        self.gamma = nn.Parameter(layer_scale * torch.ones(dim))
        self.drop_path = DropPath(drop)

    def forward(self, x):
        h = self.dwconv(x).permute(0, 2, 3, 1)
        h = self.pwconv2(F.gelu(self.pwconv1(self.norm(h)))) * self.gamma
        return x + self.drop_path(h.permute(0, 3, 1, 2))


class RootNet(nn.Module):
    def __init__(self, dim=24, depth=4, classes=4, drop=0.4):
        super().__init__()
        self.stem = nn.Conv2d(1, dim, 2, stride=2)
        self.blocks = nn.ModuleList(ConvNeXtBlock(dim, drop * i / (depth - 1)) for i in range(depth))
        self.norm = nn.LayerNorm(dim)
        self.head = nn.Linear(dim, classes)
        nn.init.zeros_(self.head.weight)

    def forward(self, x):
        x = self.stem(x)
        for i, block in enumerate(self.blocks):
            if self.training and i and torch.rand(()) < 0.15:
                continue
            x = checkpoint(block, x, use_reentrant=False) if self.training else block(x)
        return self.head(self.norm(x.mean((2, 3))))


def roots(n, side=16):
    """Lines of four slopes."""
    y = torch.randint(0, 4, (n,))
    slope = torch.tensor([0.0, 0.5, 1.0, 2.0])[y].view(-1, 1, 1)
    axis = torch.arange(side).float()
    offset = 8 * torch.rand(n, 1, 1)
    d = (axis.view(1, 1, -1) * slope - axis.view(1, -1, 1) + offset) / (1 + slope ** 2).sqrt()
    return (torch.exp(-(torch.remainder(d + 3, 6) - 3) ** 2) + 0.15 * torch.randn(n, side, side)).unsqueeze(1), y


torch.manual_seed(81)
model = RootNet()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2, weight_decay=0.02)
for epoch in range(8):
    model.train()
    for _ in range(12):
        x, y = roots(24)
        loss = F.cross_entropy(model(x), y, label_smoothing=0.1)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    model.eval()
    with torch.no_grad():
        x, y = roots(128)
        print(f"epoch {epoch} loss {F.cross_entropy(model(x), y).item():.4f}")
torch.save(model.state_dict(), "roots.pt")
