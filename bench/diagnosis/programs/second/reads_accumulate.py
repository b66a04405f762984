"""DNA motifs with a residual 1-D CNN, six micro batches to a step, the rest of an epoch as a smaller step."""
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset


class Residual(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.conv1 = nn.Conv1d(c, c, 5, padding=2)
        self.conv2 = nn.Conv1d(c, c, 5, padding=2)
        self.scale = nn.Parameter(torch.zeros(1))

    def forward(self, x):
        return x + self.scale * self.conv2(F.relu(self.conv1(F.relu(x))))


class MotifNet(nn.Module):
    def __init__(self, c=24):
        super().__init__()
        self.stem = nn.Conv1d(4, c, 7, padding=3)
        self.body = nn.Sequential(Residual(c), Residual(c))
        self.fc = nn.Linear(c, 4)

    def forward(self, x):
        return self.fc(F.relu(self.body(self.stem(x))).amax(-1))


def reads(n, length=40):
    motifs = torch.randint(0, 4, (4, 7))
    seq = torch.randint(0, 4, (n, length))
    y = torch.arange(n) % 4
    for i in range(n):
        at = torch.randint(0, length - 7, ()).item()
        seq[i, at : at + 7] = motifs[y[i]]
    return TensorDataset(F.one_hot(seq, 4).float().transpose(1, 2), y)


torch.manual_seed(13)
loader = DataLoader(reads(1300), batch_size=16, shuffle=True)
model = MotifNet()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
accumulate = 6
optimizer.zero_grad()
for epoch in range(6):
    total = 0.0
    for i, (x, y) in enumerate(loader):
        first = i - i % accumulate
        size = min(accumulate, len(loader) - first)
        loss = F.cross_entropy(model(x), y)
        (loss / size).backward()
        total += loss.item()
        if (i + 1) % accumulate == 0 or i + 1 == len(loader):
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()
    print(f"epoch {epoch} loss {total / len(loader):.4f}")
torch.save(model.state_dict(), "motifs.pt")
