"""SimCLR: two noisy views of each shell; similarity with itself is masked by -inf."""
import torch
import torch.nn as nn
import torch.nn.functional as F


class Encoder(nn.Module):
    def __init__(self, dim=32):
        super().__init__()
        self.conv1 = nn.Conv1d(1, 16, 7, stride=2, padding=3)
        self.bn1 = nn.BatchNorm1d(16)
        self.conv2 = nn.Conv1d(16, 32, 5, stride=2, padding=2)
        self.bn2 = nn.BatchNorm1d(32)
        self.fc = nn.Linear(32, dim)

    def forward(self, x):
        x = F.relu(self.bn1(self.conv1(x)))
        x = F.relu(self.bn2(self.conv2(x)))
        return self.fc(x.amax(-1))


class SimCLR(nn.Module):
    def __init__(self, encoder, dim=32, out=16):
        super().__init__()
        self.encoder = encoder
        self.projector = nn.Sequential(nn.Linear(dim, dim), nn.ReLU(), nn.Linear(dim, out))

    def forward(self, x):
        return F.normalize(self.projector(self.encoder(x)), dim=1)


def nt_xent(a, b, temperature=0.2):
    z = torch.cat([a, b])
    sim = z @ z.t() / temperature
    sim.fill_diagonal_(float("-inf"))
    n = len(a)
    return F.cross_entropy(sim, torch.arange(2 * n).roll(n))


def shells(n):
    t = torch.arange(48).float()
    pitch, ribs = 0.1 + 0.5 * torch.rand(n, 1), 0.8 + torch.rand(n, 1)
    return torch.sin(pitch * t) + 0.5 * torch.sin(ribs * t)


def augment(x):
    shifted = torch.stack([row.roll(int(torch.randint(0, 48, (1,)))) for row in x])
    scaled = shifted * (0.7 + 0.6 * torch.rand(len(x), 1))
    return (scaled + 0.1 * torch.randn_like(x)).unsqueeze(1)


def main():
    torch.manual_seed(33)
    model = SimCLR(Encoder())
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-3, weight_decay=1e-3)
    total = 0.0
    for step in range(1, 121):
        x = shells(48)
        loss = nt_xent(model(augment(x)), model(augment(x)))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total += loss.item()
        if step == 1 or step % 20 == 0:
            print(f"step {step} loss {total / (1 if step == 1 else 20 if step > 20 else 19):.4f}")
            total = 0.0
    torch.save(model.encoder.state_dict(), "encoder.pt")


main()
