"""Leaf types; checks the untrained accuracy first, then trains."""
import torch
from torch import nn
import torch.nn.functional as F


def conv_bn(i, o):
    return nn.Sequential(nn.Conv2d(i, o, 3, padding=1), nn.BatchNorm2d(o), nn.ReLU())


class LeafNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.c1, self.c2 = conv_bn(3, 10), conv_bn(10, 20)
        self.fc = nn.Linear(20 * 4, 6)

    def forward(self, x):
        x = F.max_pool2d(self.c1(x), 2)
        x = F.adaptive_avg_pool2d(self.c2(x), 2)
        return self.fc(x.flatten(1))


def leaves(n):
    g = torch.Generator().manual_seed(3)
    base = torch.rand(6, 3, 10, 10, generator=g) * 4
    y = torch.randint(0, 6, (n,))
    return base[y] + torch.randn(n, 3, 10, 10) + 3, y


def accuracy(net, n=120):
    net.eval()
    x, y = leaves(n)
    with torch.no_grad():
        return (net(x).argmax(1) == y).float().mean().item()


torch.manual_seed(1)
net = LeafNet()
print("untrained accuracy", round(accuracy(net), 3))
opt = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9)
for step in range(60):
    x, y = leaves(32)
    loss = F.cross_entropy(net(x), y)
    opt.zero_grad()
    loss.backward()
    opt.step()
    if step % 12 == 0:
        print("step", step, "loss", round(loss.item(), 4))
print("trained accuracy", round(accuracy(net), 3))
torch.save(net.state_dict(), "leaf.pt")
