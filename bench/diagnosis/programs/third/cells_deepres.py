"""A deep residual network without normalisation for cell images."""
import torch
import torch.nn as nn
import torch.nn.functional as F


class BasicBlock(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.conv1 = nn.Conv2d(channels, channels, 3, padding=1)
        self.conv2 = nn.Conv2d(channels, channels, 3, padding=1)

    def forward(self, x):
        identity = x
        out = F.relu(self.conv1(x))
        out = self.conv2(out)
        return F.relu(out)


class CellResNet(nn.Module):
    def __init__(self, blocks=8, channels=12, num_classes=3):
        super().__init__()
        self.conv1 = nn.Conv2d(1, channels, 3, padding=1)
        self.layer1 = nn.Sequential(*[BasicBlock(channels) for _ in range(blocks // 2)])
        self.pool = nn.AvgPool2d(2)
        self.layer2 = nn.Sequential(*[BasicBlock(channels) for _ in range(blocks - blocks // 2)])
        self.fc = nn.Linear(channels, num_classes)

    def forward(self, x):
        x = F.relu(self.conv1(x))
        x = self.layer1(x)
        x = self.pool(x)
        x = self.layer2(x)
        x = F.adaptive_avg_pool2d(x, 1).flatten(1)
        return self.fc(x)


def cells(n, side=12):
    """Round cells, with a nucleus of one of three kinds: none, dark, bright."""
    y = torch.randint(0, 3, (n,))
    axis = torch.arange(side).float()
    cy, cx = 4 + 4 * torch.rand(n, 1, 1), 4 + 4 * torch.rand(n, 1, 1)
    dist = ((axis.view(1, -1, 1) - cy) ** 2 + (axis.view(1, 1, -1) - cx) ** 2).sqrt()
    x = 0.5 * (dist < 4.5).float()
    level = torch.tensor([0.0, -0.4, 0.5])[y].view(-1, 1, 1)
    x = x + level * (dist < 2).float()
    return (x + 0.05 * torch.randn(n, side, side)).unsqueeze(1), y


def main():
    torch.manual_seed(2)
    net = CellResNet()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.005, momentum=0.9)
    running = 0.0
    for step in range(1, 151):
        x, y = cells(32)
        loss = F.cross_entropy(net(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        running += loss.item()
        if step % 25 == 0:
            print(f"[{step:3d}] loss: {running / 25:.4f}")
            running = 0.0
    torch.save(net.state_dict(), "cells.pt")


if __name__ == "__main__":
    main()
