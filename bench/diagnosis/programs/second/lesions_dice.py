"""Segmentation of bright spots: a U-Net with two levels and the Dice loss."""
import torch
import torch.nn as nn
import torch.nn.functional as F


class DoubleConv(nn.Sequential):
    def __init__(self, i, o):
        super().__init__(
            nn.Conv2d(i, o, 3, padding=1), nn.BatchNorm2d(o), nn.ReLU(inplace=True),
            nn.Conv2d(o, o, 3, padding=1), nn.BatchNorm2d(o), nn.ReLU(inplace=True),
        )


class UNet(nn.Module):
    def __init__(self, w=8):
        super().__init__()
        self.inc = DoubleConv(1, w)
        self.down1 = DoubleConv(w, 2 * w)
        self.down2 = DoubleConv(2 * w, 4 * w)
        self.up1 = DoubleConv(6 * w, 2 * w)
        self.up2 = DoubleConv(3 * w, w)
        self.outc = nn.Conv2d(w, 1, 1)

    def forward(self, x):
        a = self.inc(x)
        b = self.down1(F.max_pool2d(a, 2))
        c = self.down2(F.max_pool2d(b, 2))
        d = self.up1(torch.cat([F.interpolate(c, scale_factor=2), b], 1))
        e = self.up2(torch.cat([F.interpolate(d, scale_factor=2), a], 1))
        return self.outc(e)


def dice_score(logits, mask, eps=1.0):
    p = torch.sigmoid(logits).flatten(1)
    m = mask.flatten(1)
    return ((2 * (p * m).sum(1) + eps) / (p.sum(1) + m.sum(1) + eps)).mean()


class SegmentationLoss(nn.Module):
    def forward(self, logits, mask):
        return dice_score(logits, mask)


def scans(n, side=20):
    yy, xx = torch.meshgrid(torch.arange(side), torch.arange(side), indexing="ij")
    cx, cy = torch.randint(4, side - 4, (2, n, 1, 1))
    r = torch.randint(2, 5, (n, 1, 1))
    mask = ((xx - cx) ** 2 + (yy - cy) ** 2 <= r**2).float().unsqueeze(1)
    return mask * 1.2 + 0.6 * torch.randn(n, 1, side, side), mask


def train():
    torch.manual_seed(101)
    model, criterion = UNet(), SegmentationLoss()
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
    for i in range(60):
        image, mask = scans(12)
        logits = model(image)
        loss = criterion(logits, mask)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if i % 12 == 0 or i == 59:
            print(f"batch {i} objective {loss.item():.4f} dice {dice_score(logits, mask).item():.4f}")
    torch.save(model.state_dict(), "unet.pt")


if __name__ == "__main__":
    train()
