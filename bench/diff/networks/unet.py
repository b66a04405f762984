"""A U-Net with GroupNorm and two levels."""

from __future__ import annotations

import torch
from torch import nn


class Double(nn.Module):
    def __init__(self, inside: int, outside: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inside, outside, 3, padding=1)
        self.norm1 = nn.GroupNorm(4, outside)
        self.conv2 = nn.Conv2d(outside, outside, 3, padding=1)
        self.norm2 = nn.GroupNorm(4, outside)
        self.act = nn.SiLU()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.act(self.norm1(self.conv1(x)))
        return self.act(self.norm2(self.conv2(x)))


class Up(nn.Module):
    """Twice as large, beside what came down at this level."""

    def __init__(self, inside: int, outside: int) -> None:
        super().__init__()
        self.up = nn.Upsample(scale_factor=2, mode="bilinear", align_corners=False)
        self.shrink = nn.Conv2d(inside, outside, 1)
        self.conv = Double(2 * outside, outside)

    def forward(self, x: torch.Tensor, skip: torch.Tensor) -> torch.Tensor:
        return self.conv(torch.cat([skip, self.shrink(self.up(x))], dim=1))


class UNet(nn.Module):
    def __init__(self, up: type[nn.Module] = Up) -> None:
        super().__init__()
        self.enter = Double(2, 8)
        self.pool = nn.MaxPool2d(2)
        self.down1 = Double(8, 16)
        self.down2 = Double(16, 32)
        self.up1 = up(32, 16)
        self.up2 = up(16, 8)
        self.out = nn.Conv2d(8, 3, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        one = self.enter(x)
        two = self.down1(self.pool(one))
        three = self.down2(self.pool(two))
        return self.out(self.up2(self.up1(three, two), one))
