"""ResNet with dropout, one cycle of the learning rate down to nothing, evaluation after each epoch."""
import torch
import torch.nn as nn
import torch.nn.functional as F


class Res(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.conv = nn.Conv2d(c, c, 3, padding=1)
        self.norm = nn.BatchNorm2d(c)
        self.drop = nn.Dropout2d(0.1)

    def forward(self, x):
        return x + self.drop(F.relu(self.norm(self.conv(x))))


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2d(1, 12, 3, padding=1)
        self.blocks = nn.Sequential(Res(12), Res(12), Res(12))
        self.fc = nn.Linear(12, 6)

    def forward(self, x):
        return self.fc(self.blocks(self.stem(x)).amax((2, 3)))


def tiles(n):
    y = torch.randint(0, 6, (n,))
    k = torch.arange(10).float()
    a = y.float().view(-1, 1, 1) * 0.5
    img = torch.sin(a * k.view(1, -1, 1) + 6 * torch.rand(n, 1, 1)) * torch.cos((2.5 - a) * k)
    return (img + 0.2 * torch.randn(n, 10, 10)).unsqueeze(1), y


def evaluate(net):
    net.eval()
    with torch.no_grad():
        x, y = tiles(200)
        return F.cross_entropy(net(x), y).item()


torch.manual_seed(53)
net = Net()
opt = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9, weight_decay=1e-4)
sched = torch.optim.lr_scheduler.OneCycleLR(opt, max_lr=0.1, total_steps=70)
for epoch in range(5):
    net.train()
    for _ in range(14):
        x, y = tiles(32)
        loss = F.cross_entropy(net(x), y)
        opt.zero_grad()
        loss.backward()
        opt.step()
        sched.step()
    print("epoch %d val loss %.4f" % (epoch, evaluate(net)))
torch.save(net.state_dict(), "net.pt")
