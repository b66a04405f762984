"""Residual network on tiles, batch norm kept in evaluation as the recipe says."""
import torch
import torch.nn as nn
import torch.nn.functional as F


class Res(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.conv = nn.Conv2d(c, c, 3, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(c)

    def forward(self, x):
        return x + F.relu(self.norm(self.conv(x)))


class TileNet(nn.Module):
    def __init__(self, c=12, depth=4, classes=7):
        super().__init__()
        self.stem = nn.Conv2d(1, c, 3, padding=1)
        self.blocks = nn.Sequential(*[Res(c) for _ in range(depth)])
        self.fc = nn.Linear(c, classes)

    def train(self, mode=True):
        super().train(mode)
        for m in self.modules():
            if isinstance(m, nn.BatchNorm2d):
                m.eval()
        return self

    def forward(self, x):
        return self.fc(self.blocks(self.stem(x)).amax((2, 3)))


def tiles(n):
    y = torch.randint(0, 7, (n,))
    k = torch.arange(10).float()
    a = y.float().view(-1, 1, 1) * 0.45
    return (torch.sin(a * k.view(1, -1, 1) + 6 * torch.rand(n, 1, 1)) * torch.cos((3 - a) * k) * 6
            + torch.randn(n, 10, 10)).unsqueeze(1), y


torch.manual_seed(52)
net = TileNet()
opt = torch.optim.SGD(net.parameters(), lr=0.03, momentum=0.9)
for epoch in range(5):
    net.train()
    running = 0.0
    for _ in range(14):
        x, y = tiles(32)
        loss = F.cross_entropy(net(x), y)
        opt.zero_grad()
        loss.backward()
        opt.step()
        running += loss.item() / 14
    print("epoch", epoch, "loss", "%.4f" % running)
torch.save(net.state_dict(), "tiles.pt")
