# Pretrain a little CNN on 6 patterns, freeze it, and train a new head for 3 other ones.
import torch
from torch import nn
import torch.nn.functional as F

torch.manual_seed(17)
G = torch.Generator().manual_seed(2)
TEMPLATES = torch.randn(9, 1, 10, 10, generator=G)


def batch(lo, hi, n=48):
    y = torch.randint(lo, hi, (n,))
    return TEMPLATES[y] + 0.9 * torch.randn(n, 1, 10, 10), y - lo


class SmallCNN(nn.Module):
    def __init__(self, n_classes):
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(1, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2),
            nn.Conv2d(8, 16, 3), nn.BatchNorm2d(16), nn.ReLU(),
        )
        self.fc = nn.Linear(16 * 2 * 2, n_classes)

    def forward(self, x):
        return self.fc(self.features(x).flatten(1))


model = SmallCNN(6)
opt = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9)
for it in range(30):
    x, y = batch(0, 6)
    loss = F.cross_entropy(model(x), y)
    opt.zero_grad()
    loss.backward()
    opt.step()
print("pretrained, last value %.3f" % loss.item())

for p in model.features.parameters():
    p.requires_grad = False
model.features.eval()
model.fc = nn.Linear(model.fc.in_features, 3)
opt = torch.optim.SGD(model.fc.parameters(), lr=0.02, momentum=0.9)

for it in range(60):
    x, y = batch(6, 9)
    loss = F.cross_entropy(model(x), y)
    opt.zero_grad()
    loss.backward()
    opt.step()
    if it % 15 == 0:
        print("fine-tune %d loss %.4f" % (it, loss.item()))

model.eval()
with torch.no_grad():
    x, y = batch(6, 9, 400)
    print("final loss %.4f" % F.cross_entropy(model(x), y).item())
torch.save(model.state_dict(), "finetuned.pt")
