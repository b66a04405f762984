"""Remaining useful life of pumps from windows of vibration, each window standardised by itself."""
import torch
import torch.nn as nn
from torch.utils.data import DataLoader, Dataset

WINDOW = 32


def record_pump(length=700):
    """Vibration gets faster while the pump ages. A logger that is offline holds its last value."""
    age = torch.linspace(0, 1, length)
    phase = torch.cumsum(0.3 + 0.9 * age, 0)
    return torch.sin(phase) * (1 + age) + 0.1 * torch.randn(length), 1 - age


class VibrationWindows(Dataset):
    def __init__(self, pumps=4, stride=5):
        self.windows, self.life = [], []
        for p in range(pumps):
            signal, life = record_pump()
            if p == 2:
                signal[300:340] = signal[299]
            for start in range(0, len(signal) - WINDOW, stride):
                self.windows.append(signal[start:start + WINDOW])
                self.life.append(life[start + WINDOW])

    def __len__(self):
        return len(self.windows)

    def __getitem__(self, i):
        w = self.windows[i]
        w = (w - w.mean()) / w.std()
        return w.unsqueeze(0), self.life[i]


class RULNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv1d(1, 16, 5, padding=2)
        self.conv2 = nn.Conv1d(16, 32, 5, padding=2)
        self.pool = nn.MaxPool1d(2)
        self.fc1 = nn.Linear(32 * 8, 32)
        self.fc2 = nn.Linear(32, 1)

    def forward(self, x):
        x = self.pool(torch.relu(self.conv1(x)))
        x = self.pool(torch.relu(self.conv2(x)))
        x = torch.relu(self.fc1(x.flatten(1)))
        return self.fc2(x).squeeze(1)


torch.manual_seed(40)
loader = DataLoader(VibrationWindows(), batch_size=16, shuffle=True)
net = RULNet()
optimizer = torch.optim.Adam(net.parameters(), lr=2e-3)
loss_fn = nn.MSELoss()

for epoch in range(6):
    losses = []
    for x, y in loader:
        optimizer.zero_grad()
        loss = loss_fn(net(x), y)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    print(f"epoch {epoch} loss {sum(losses) / len(losses):.5f}")
torch.save(net.state_dict(), "rul.pt")
