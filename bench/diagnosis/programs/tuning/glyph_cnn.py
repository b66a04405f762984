import torch
import torch.nn as nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(11)


def glyphs(n, n_classes=8, side=12):
    g = torch.Generator().manual_seed(5)
    protos = (torch.rand(n_classes, 1, side, side, generator=g) > 0.6).float()
    y = torch.arange(n) % n_classes
    return protos[y] * (0.5 + torch.rand(n, 1, 1, 1)) + 0.8 * torch.randn(n, 1, side, side), y


class GlyphNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 12, 3, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(12)
        self.conv2 = nn.Conv2d(12, 24, 3, stride=2, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(24)
        self.drop = nn.Dropout(0.3)
        self.fc = nn.Linear(24 * 3 * 3, 8)
        self.pool = nn.AvgPool2d(2)

    def forward(self, x):
        x = torch.relu(self.bn1(self.conv1(x)))
        x = self.pool(torch.relu(self.bn2(self.conv2(x))))
        return self.fc(self.drop(x.flatten(1)))


def validate(model, loader, criterion):
    model.eval()
    total, count = 0.0, 0
    with torch.no_grad():
        for x, y in loader:
            total += criterion(model(x), y).item() * len(y)
            count += len(y)
    return total / count


train_loader = DataLoader(TensorDataset(*glyphs(512)), batch_size=32, shuffle=True)
val_loader = DataLoader(TensorDataset(*glyphs(128)), batch_size=64)
model = GlyphNet()
criterion = nn.CrossEntropyLoss()
optimizer = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9)

model.train()
for epoch in range(5):
    for x, y in train_loader:
        optimizer.zero_grad()
        loss = criterion(model(x), y)
        loss.backward()
        optimizer.step()
    print(f"epoch {epoch}: train {loss.item():.4f}, val loss {validate(model, val_loader, criterion):.4f}")

torch.save(model.state_dict(), "glyphnet.pt")
