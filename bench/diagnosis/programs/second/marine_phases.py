"""Fine-tuning in two phases: first the new head on a still backbone, then everything with a smaller rate."""
import torch
import torch.nn as nn
import torch.nn.functional as F


class Backbone(nn.Module):
    def __init__(self, w=12):
        super().__init__()
        self.conv1 = nn.Conv2d(1, w, 3, padding=1)
        self.bn1 = nn.BatchNorm2d(w)
        self.conv2 = nn.Conv2d(w, 2 * w, 3, stride=2, padding=1)
        self.bn2 = nn.BatchNorm2d(2 * w)

    def forward(self, x):
        x = F.relu(self.bn1(self.conv1(x)))
        return F.adaptive_avg_pool2d(F.relu(self.bn2(self.conv2(x))), 3).flatten(1)


class Classifier(nn.Module):
    def __init__(self, classes):
        super().__init__()
        self.backbone = Backbone()
        self.head = nn.Linear(24 * 9, classes)

    def forward(self, x):
        return self.head(self.backbone(x))


def data(protos, n):
    y = torch.randint(0, len(protos), (n,))
    return protos[y] + 0.6 * torch.randn(n, 1, 12, 12), y


def run(model, optimizer, protos, steps, title):
    for step in range(steps):
        x, y = data(protos, 32)
        loss = F.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 20 == 0 or step == steps - 1:
            print(f"{title} {step} loss {loss.item():.4f}")


torch.manual_seed(38)
old, new = torch.randn(8, 1, 12, 12), torch.randn(5, 1, 12, 12)
model = Classifier(8)
run(model, torch.optim.Adam(model.parameters(), lr=2e-3), old, 40, "pretrain")

model.head = nn.Linear(24 * 9, 5)
model.backbone.requires_grad_(False)
model.backbone.eval()
optimizer = torch.optim.Adam(model.head.parameters(), lr=3e-3)
run(model, optimizer, new, 40, "head")

model.backbone.requires_grad_(True)
model.train()
optimizer.add_param_group({"params": model.backbone.parameters(), "lr": 3e-4})
run(model, optimizer, new, 40, "all")
torch.save(model.state_dict(), "marine.pt")
