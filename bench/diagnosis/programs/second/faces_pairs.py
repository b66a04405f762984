"""Metric learning: pairs of the same person near, others at least a margin apart."""
import torch
import torch.nn as nn
import torch.nn.functional as F

PEOPLE, SHOTS, PIXELS = 12, 40, 36


class Embedder(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc1 = nn.Linear(PIXELS, 64)
        self.fc2 = nn.Linear(64, 64)
        self.out = nn.Linear(64, 8)

    def forward(self, x):
        x = F.elu(self.fc1(x))
        x = F.elu(self.fc2(x))
        return self.out(x)


class PairLoss(nn.Module):
    def __init__(self, margin=2.0):
        super().__init__()
        self.margin = margin

    def forward(self, a, b, same):
        d = ((a - b) ** 2).sum(1).sqrt()
        return (same * d**2 + (1 - same) * F.relu(self.margin - d) ** 2).mean()


def gallery():
    person = torch.arange(PEOPLE).repeat_interleave(SHOTS)
    base = torch.randn(PEOPLE, PIXELS)
    return base[person] + 0.9 * torch.randn(PEOPLE * SHOTS, PIXELS), person


def pairs(person, n):
    i = torch.randint(0, len(person), (n,))
    j = torch.randint(0, len(person), (n,))
    half = n // 2
    j[:half] = person[i[:half]] * SHOTS + torch.randint(0, SHOTS, (half,))
    return i, j


torch.manual_seed(4)
photos, person = gallery()
model, criterion = Embedder(), PairLoss()
opt = torch.optim.Adam(model.parameters(), lr=3e-3)
for step in range(90):
    i, j = pairs(person, 24)
    same = (person[i] == person[j]).float()
    loss = criterion(model(photos[i]), model(photos[j]), same)
    opt.zero_grad()
    loss.backward()
    opt.step()
    if step % 15 == 0 or step == 89:
        print(f"{step:3d} loss {loss.item():.4f}")
torch.save(model.state_dict(), "pairs.pt")
