"""Land use from small multi-band tiles: a residual net."""
import torch
import torch.nn as nn
import torch.nn.functional as F


class Block(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.conv1 = nn.Conv2d(c, c, 3, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(c)
        self.conv2 = nn.Conv2d(c, c, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(c)

    def forward(self, x):
        return F.relu(x + self.bn2(self.conv2(F.relu(self.bn1(self.conv1(x))))))


class TileNet(nn.Module):
    def __init__(self, bands=4, classes=6, width=16):
        super().__init__()
        self.stem = nn.Conv2d(bands, width, 3, padding=1, bias=False)
        self.bn = nn.BatchNorm2d(width)
        self.layer1 = Block(width)
        self.layer2 = Block(width)
        self.fc = nn.Linear(width * 16, classes)

    def train(self, mode=True):
        super().train(mode)
        for m in self.modules():
            if isinstance(m, nn.BatchNorm2d):
                m.eval()
        return self

    def forward(self, x):
        x = F.relu(self.bn(self.stem(x)))
        x = F.avg_pool2d(self.layer1(x), 2)
        x = self.layer2(x)
        return self.fc(x.flatten(1))


torch.manual_seed(77)
spectra = torch.randn(6, 4, 8, 8)
offset = torch.tensor([12.0, 9.0, 15.0, 7.0]).view(4, 1, 1)


def tiles(n):
    y = torch.randint(0, 6, (n,))
    return offset + spectra[y] + 1.2 * torch.randn(n, 4, 8, 8), y


net = TileNet()
opt = torch.optim.SGD(net.parameters(), lr=0.01, momentum=0.9)
for epoch in range(4):
    net.train()
    for _ in range(25):
        x, y = tiles(32)
        opt.zero_grad()
        F.cross_entropy(net(x), y).backward()
        nn.utils.clip_grad_norm_(net.parameters(), 2.0)
        opt.step()
    net.eval()
    with torch.no_grad():
        x, y = tiles(256)
        out = net(x)
        acc = (out.argmax(1) == y).float().mean()
        print(f"epoch {epoch} loss {F.cross_entropy(out, y).item():.4f} acc {acc:.3f}")
torch.save(net.state_dict(), "tilenet.pt")
