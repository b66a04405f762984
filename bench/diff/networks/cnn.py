"""A small ResNet, and a block with two parallel convolutions."""

from __future__ import annotations

import torch
from torch import nn


class Block(nn.Module):
    """Two convolutions and a residual; its one ReLU is called twice."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(width, width, 3, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(width)
        self.relu = nn.ReLU()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out = self.relu(self.bn1(self.conv1(x)))
        out = self.bn2(self.conv2(out))
        return self.relu(out + x)


class ResNet(nn.Module):
    """Images of 16 x 16 to 10 classes."""

    def __init__(self, block: type[nn.Module] = Block, width: int = 12) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, width, 3, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.act = nn.LeakyReLU(0.01)
        self.layer1 = nn.Sequential(block(width), block(width))
        self.pool = nn.AvgPool2d(3, stride=2, padding=1, count_include_pad=False)
        self.layer2 = nn.Sequential(block(width), block(width))
        self.fc = nn.Linear(width, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.act(self.bn1(self.conv1(x)))
        x = self.layer2(self.pool(self.layer1(x)))
        return self.fc(x.mean((2, 3)))


class Inception(nn.Module):
    """Two branches of the same shape over one input, side by side."""

    def __init__(self, width: int = 12) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, width, 3, padding=1)
        self.left = nn.Conv2d(width, width, 3, padding=1)
        self.right = nn.Conv2d(width, width, 3, padding=1)
        self.join = nn.Conv2d(2 * width, width, 1)
        self.fc = nn.Linear(width, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.stem(x).relu()
        x = self.join(torch.cat([self.left(x).relu(), self.right(x).relu()], 1))
        return self.fc(x.relu().mean((2, 3)))
