"""Predict the received signal strength (dBm) at a position from the distances to four antennas."""
import numpy as np
import torch
import torch.nn as nn
from torch.utils.data import DataLoader, Dataset

np.random.seed(12)
torch.manual_seed(12)


class SignalDataset(Dataset):
    def __init__(self, n):
        pos = np.random.rand(n, 2)
        antennas = np.array([[0.1, 0.1], [0.9, 0.2], [0.2, 0.8], [0.8, 0.9]])
        dist = np.linalg.norm(pos[:, None] - antennas[None], axis=-1)
        best = dist.min(1)
        rssi = -30 - 40 * np.log10(1 + 20 * best) + 1.5 * np.random.randn(n)
        self.x = ((dist - dist.mean(0)) / dist.std(0)).astype(np.float32)
        self.y = (rssi / 100).astype(np.float32)

    def __len__(self):
        return len(self.y)

    def __getitem__(self, i):
        return self.x[i], self.y[i]


class Regressor(nn.Module):
    def __init__(self, hidden=(32, 16)):
        super().__init__()
        sizes = [4, *hidden, 1]
        layers = []
        for a, b in zip(sizes[:-1], sizes[1:]):
            layers += [nn.Linear(a, b), nn.ReLU()]
        self.net = nn.Sequential(*layers)

    def forward(self, x):
        return self.net(x).squeeze(-1)


def rmse(model, loader):
    model.eval()
    with torch.no_grad():
        err = torch.cat([(model(x) - y) ** 2 for x, y in loader])
    return 100 * err.mean().sqrt().item()


train_loader = DataLoader(SignalDataset(640), batch_size=32, shuffle=True)
test_loader = DataLoader(SignalDataset(128), batch_size=128)
model = Regressor()
optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
for epoch in range(8):
    model.train()
    for x, y in train_loader:
        loss = nn.functional.mse_loss(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(f"epoch {epoch + 1} test rmse {rmse(model, test_loader):.3f} dB")
torch.save(model.state_dict(), "rssi.pt")
