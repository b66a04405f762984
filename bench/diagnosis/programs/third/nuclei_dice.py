"""Nuclei segmentation with a Dice loss."""
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset


def conv_block(cin, cout):
    return nn.Sequential(
        nn.Conv2d(cin, cout, 3, padding=1), nn.BatchNorm2d(cout), nn.ReLU(inplace=True),
        nn.Conv2d(cout, cout, 3, padding=1), nn.BatchNorm2d(cout), nn.ReLU(inplace=True),
    )


class UNetSmall(nn.Module):
    def __init__(self, w=8):
        super().__init__()
        self.enc1 = conv_block(1, w)
        self.enc2 = conv_block(w, 2 * w)
        self.up = nn.Upsample(scale_factor=2, mode="nearest")
        self.dec = conv_block(3 * w, w)
        self.final = nn.Conv2d(w, 1, 1)

    def forward(self, x):
        e1 = self.enc1(x)
        e2 = self.enc2(F.max_pool2d(e1, 2))
        return torch.sigmoid(self.final(self.dec(torch.cat([self.up(e2), e1], 1))))


class DiceLoss(nn.Module):
    def __init__(self, smooth=1.0):
        super().__init__()
        self.smooth = smooth

    def forward(self, inputs, targets):
        inputs = (inputs > 0.5).float()
        inputs, targets = inputs.view(-1), targets.view(-1)
        intersection = (inputs * targets).sum()
        dice = (2.0 * intersection + self.smooth) / (inputs.sum() + targets.sum() + self.smooth)
        loss = 1 - dice
        loss.requires_grad = True
        return loss


def nuclei(n, side=16):
    axis = torch.arange(side).float()
    mask = torch.zeros(n, side, side, dtype=torch.bool)
    for _ in range(3):
        cy, cx, r = side * torch.rand(n, 1, 1), side * torch.rand(n, 1, 1), 1.5 + 2 * torch.rand(n, 1, 1)
        mask |= (axis.view(1, -1, 1) - cy) ** 2 + (axis.view(1, 1, -1) - cx) ** 2 < r * r
    image = 0.6 * mask.float() + 0.2 * torch.randn(n, side, side) + 0.3 * torch.rand(n, 1, 1)
    return TensorDataset(image.unsqueeze(1), mask.float().unsqueeze(1))


torch.manual_seed(101)
train_dl = DataLoader(nuclei(256), batch_size=16, shuffle=True)
model = UNetSmall()
criterion = DiceLoss()
optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)

for epoch in range(6):
    model.train()
    total = 0.0
    for image, mask in train_dl:
        pred = model(image)
        loss = criterion(pred, mask)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total += loss.item()
    print(f"epoch {epoch + 1} dice loss {total / len(train_dl):.4f}")
torch.save(model.state_dict(), "nuclei.pt")
