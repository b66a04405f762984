import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset


class BasicBlock(nn.Module):
    def __init__(self, cin, cout, stride=1):
        super().__init__()
        self.conv1 = nn.Conv2d(cin, cout, 3, stride, 1)
        self.bn1 = nn.BatchNorm2d(cout)
        self.conv2 = nn.Conv2d(cout, cout, 3, 1, 1)
        self.bn2 = nn.BatchNorm2d(cout)
        self.shortcut = nn.Sequential()
        if stride != 1 or cin != cout:
            self.shortcut = nn.Sequential(nn.Conv2d(cin, cout, 1, stride), nn.BatchNorm2d(cout))
        nn.init.zeros_(self.bn2.weight)

    def forward(self, x):
        out = F.relu(self.bn1(self.conv1(x)))
        out = self.bn2(self.conv2(out))
        return F.relu(out + self.shortcut(x))


class ResNet(nn.Module):
    def __init__(self, num_classes=6):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(1, 8, 3, 1, 1), nn.BatchNorm2d(8), nn.ReLU())
        self.layer1 = BasicBlock(8, 8)
        self.layer2 = BasicBlock(8, 16, 2)
        self.layer3 = BasicBlock(16, 16)
        self.fc = nn.Linear(16, num_classes)

    def forward(self, x):
        x = self.layer3(self.layer2(self.layer1(self.stem(x))))
        return self.fc(x.mean((2, 3)))


def textures(n, side=12):
    y = torch.randint(0, 6, (n,))
    i, j = torch.meshgrid(torch.arange(side), torch.arange(side), indexing="ij")
    fx = torch.tensor([0.5, 1.0, 1.6, 0.0, 0.0, 1.0])[y].view(-1, 1, 1)
    fy = torch.tensor([0.0, 0.0, 0.0, 0.8, 1.6, 1.0])[y].view(-1, 1, 1)
    img = torch.sin(fx * i + fy * j + 6.28 * torch.rand(n, 1, 1))
    return (img + 0.3 * torch.randn(n, side, side)).unsqueeze(1), y


@torch.no_grad()
def evaluate(net, loader):
    net.eval()
    losses = [F.cross_entropy(net(x), y).item() for x, y in loader]
    return sum(losses) / len(losses)


def main():
    torch.manual_seed(2)
    train_set, val_set = TensorDataset(*textures(480)), TensorDataset(*textures(120))
    train_loader = DataLoader(train_set, batch_size=40, shuffle=True)
    val_loader = DataLoader(val_set, batch_size=60)
    net = ResNet()
    opt = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9, weight_decay=5e-4)
    sched = torch.optim.lr_scheduler.CosineAnnealingLR(opt, T_max=6)
    for epoch in range(6):
        net.train()
        for x, y in train_loader:
            opt.zero_grad()
            loss = F.cross_entropy(net(x), y)
            loss.backward()
            opt.step()
        sched.step()
        print(f"epoch {epoch} val loss {evaluate(net, val_loader):.4f}")
    torch.save(net.state_dict(), "resnet.pt")


main()
