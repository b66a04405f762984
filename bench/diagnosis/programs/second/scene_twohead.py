"""Depth and segmentation from one small U-Net."""
import torch
import torch.nn as nn
import torch.nn.functional as F


def conv(i, o):
    return nn.Sequential(nn.Conv2d(i, o, 3, padding=1), nn.GroupNorm(4, o), nn.ReLU())


class SceneNet(nn.Module):
    def __init__(self, w=16):
        super().__init__()
        self.down1 = conv(3, w)
        self.down2 = conv(w, 2 * w)
        self.up = conv(3 * w, w)
        self.seg_head = nn.Conv2d(w, 3, 1)
        self.depth_head = nn.Conv2d(w, 1, 1)

    def forward(self, x):
        a = self.down1(x)
        b = self.down2(F.max_pool2d(a, 2))
        h = self.up(torch.cat([a, F.interpolate(b, scale_factor=2)], 1))
        return self.seg_head(h), self.depth_head(h)


class Trainer:
    def __init__(self, model, lr=5e-3):
        self.model = model
        self.optimizer = torch.optim.Adam(model.parameters(), lr=lr)

    def step(self, image, mask, depth):
        seg, dep = self.model(image)
        seg_loss = F.cross_entropy(seg, mask)
        depth_loss = F.l1_loss(dep, depth)

        self.optimizer.zero_grad()
        seg_loss.backward(retain_graph=True)

        self.optimizer.zero_grad()
        depth_loss.backward()

        self.optimizer.step()
        return seg_loss.item(), depth_loss.item()


def scenes(n, side=16):
    row = torch.arange(side).view(1, side, 1).expand(n, side, side)
    horizon = torch.randint(4, 12, (n, 1, 1))
    mask = (row > horizon).long()
    left = torch.randint(0, 12, (n, 1, 1))
    col = torch.arange(side).view(1, 1, side)
    box = (col >= left) & (col < left + 4) & (row > horizon - 3) & (row < horizon + 3)
    mask = mask.masked_fill(box, 2)
    colour = torch.tensor([[0.2, 0.4, 0.9], [0.3, 0.7, 0.2], [0.8, 0.2, 0.2]])
    image = colour[mask].permute(0, 3, 1, 2) + 0.2 * torch.randn(n, 3, side, side)
    depth = torch.where(mask == 0, 1.0, 0.4 + 0.03 * (side - row)).unsqueeze(1)
    return image, mask, depth


torch.manual_seed(6)
trainer = Trainer(SceneNet())
for i in range(80):
    seg, dep = trainer.step(*scenes(16))
    if i % 16 == 0 or i == 79:
        print(f"{i} seg {seg:.4f} depth {dep:.4f}")
torch.save(trainer.model.state_dict(), "scene.pt")
