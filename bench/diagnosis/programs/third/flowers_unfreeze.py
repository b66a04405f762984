"""Two-stage fine-tuning: first the new head alone, then the whole network with a smaller learning rate."""
import torch
import torch.nn as nn
import torch.nn.functional as F

SIDE = 14


class Backbone(nn.Module):
    def __init__(self, width=16):
        super().__init__()
        self.stem = nn.Conv2d(3, width, 3, padding=1)
        self.block1 = nn.Sequential(nn.GroupNorm(4, width), nn.ReLU(), nn.Conv2d(width, width, 3, padding=1))
        self.down = nn.Conv2d(width, 2 * width, 3, stride=2, padding=1)
        self.block2 = nn.Sequential(nn.GroupNorm(4, 2 * width), nn.ReLU(), nn.Conv2d(2 * width, 2 * width, 3, padding=1))
        self.out_dim = 2 * width

    def forward(self, x):
        x = self.stem(x)
        x = x + self.block1(x)
        x = self.down(F.relu(x))
        x = x + self.block2(x)
        return F.relu(x).mean((2, 3))


class FlowerNet(nn.Module):
    def __init__(self, backbone, n_classes):
        super().__init__()
        self.backbone = backbone
        self.head = nn.Linear(backbone.out_dim, n_classes)

    def forward(self, x):
        return self.head(self.backbone(x))


def petals(n):
    """Radial patterns: the class is the number of petals, 3 to 6."""
    y = torch.randint(0, 4, (n,))
    axis = torch.linspace(-1, 1, SIDE)
    yy, xx = torch.meshgrid(axis, axis, indexing="ij")
    angle, radius = torch.atan2(yy, xx), (xx ** 2 + yy ** 2).sqrt()
    turn = 6.28 * torch.rand(n, 1, 1)
    wave = torch.cos((y + 3).view(-1, 1, 1) * angle + turn)
    image = ((wave > 0.1) & (radius < 0.9)).float().unsqueeze(1) * (0.4 + torch.rand(n, 3, 1, 1))
    return image + 0.1 * torch.randn(n, 3, SIDE, SIDE), y


def colours(n):
    """What the backbone is pretrained on: which channel is brightest."""
    y = torch.randint(0, 3, (n,))
    image = torch.rand(n, 3, SIDE, SIDE)
    image[torch.arange(n), y] += 0.3
    return image, y


def freeze(module):
    for param in module.parameters():
        param.requires_grad = False


def unfreeze(module):
    for param in module.parameters():
        param.require_grad = True


def fit(model, data, optimizer, steps, tag):
    recent = []
    for step in range(steps):
        x, y = data(48)
        loss = F.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        recent.append(loss.item())
        if (step + 1) % 20 == 0:
            print(f"{tag} step {step + 1} loss {sum(recent[-20:]) / 20:.4f}")


torch.manual_seed(3)
backbone = Backbone()
pretrained = FlowerNet(backbone, 3)
fit(pretrained, colours, torch.optim.Adam(pretrained.parameters(), lr=3e-3), 40, "pretrain")

model = FlowerNet(backbone, 4)
freeze(model.backbone)
fit(model, petals, torch.optim.Adam(model.head.parameters(), lr=1e-2), 40, "head only")

unfreeze(model.backbone)
fit(model, petals, torch.optim.Adam(model.parameters(), lr=2e-3), 160, "all layers")
torch.save(model.state_dict(), "flowers.pt")
