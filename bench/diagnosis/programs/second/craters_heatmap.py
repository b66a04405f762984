"""Finds the centres of craters as a heat map; most pixels are background."""
import math

import torch
import torch.nn as nn
import torch.nn.functional as F


class CraterNet(nn.Module):
    def __init__(self, width=16, prior=0.0005):
        super().__init__()
        self.backbone = nn.Sequential(
            nn.Conv2d(1, width, 3, padding=1), nn.BatchNorm2d(width), nn.ReLU(),
            nn.Conv2d(width, width, 3, padding=1), nn.BatchNorm2d(width), nn.ReLU(),
        )
        self.head = nn.Sequential(
            nn.Conv2d(width, width, 3, padding=1), nn.ReLU(),
            nn.Conv2d(width, 1, 1),
        )
        for m in self.head.modules():
            if isinstance(m, nn.Conv2d):
                nn.init.normal_(m.weight, std=0.05)
                nn.init.constant_(m.bias, -math.log((1 - prior) / prior))

    def forward(self, x):
        return self.head(self.backbone(x))


def focal(logits, target, gamma=2.0):
    p = torch.sigmoid(logits)
    ce = F.binary_cross_entropy_with_logits(logits, target, reduction="none")
    near = torch.where(target > 0.5, p, 1 - p)
    return (ce * (1 - near) ** gamma).sum() / target.sum()


def moon(n, side=18):
    target = torch.zeros(n, 1, side, side)
    image = 0.2 * torch.randn(n, 1, side, side)
    for k in range(n):
        for _ in range(2):
            r, c = torch.randint(2, side - 2, (2,)).tolist()
            target[k, 0, r, c] = 1.0
            image[k, 0, r - 1 : r + 2, c - 1 : c + 2] -= 1.0
            image[k, 0, r, c] += 2.0
    return image, target


class Trainer:
    def __init__(self):
        torch.manual_seed(60)
        self.net = CraterNet()
        self.opt = torch.optim.Adam(self.net.parameters(), lr=5e-3)

    def run(self, steps):
        for i in range(steps):
            image, target = moon(12)
            loss = focal(self.net(image), target)
            self.opt.zero_grad()
            loss.backward()
            self.opt.step()
            if i % 20 == 0 or i == steps - 1:
                print(f"[{i}] loss {loss.item():.4f}")


trainer = Trainer()
trainer.run(100)
torch.save(trainer.net.state_dict(), "craters.pt")
