"""Homework 3: classify floor tiles. Pictures come as (N, H, W, C), like those that were read with PIL."""
import numpy as np
import torch
import torch.nn as nn
from torch.utils.data import DataLoader, TensorDataset

rng = np.random.default_rng(17)
torch.manual_seed(17)


def make_tiles(n=512, side=12):
    """Four kinds: horizontal or vertical joints, red or blue."""
    y = rng.integers(0, 4, n)
    x = np.zeros((n, side, side, 3), dtype=np.float32)
    for i, kind in enumerate(y):
        period, start = 4, rng.integers(0, 4)
        channel = 0 if kind < 2 else 2
        x[i, :, :, channel] = 0.5
        if kind % 2:
            x[i, start::period, :, :] = 1.0
        else:
            x[i, :, start::period, :] = 1.0
    return x + 0.25 * rng.standard_normal(x.shape).astype(np.float32), y


# convert to torch tensors with channels first
x_np, y_np = make_tiles()
x = torch.tensor(x_np).view(-1, 3, 12, 12)
y = torch.tensor(y_np)
loader = DataLoader(TensorDataset(x, y), batch_size=32, shuffle=True)


class TileNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(3, 8, kernel_size=3)
        self.conv2 = nn.Conv2d(8, 16, kernel_size=3)
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.fc = nn.Linear(16, 4)

    def forward(self, x):
        x = torch.relu(self.conv1(x))
        x = torch.relu(self.conv2(x))
        return self.fc(self.pool(x).flatten(1))


net = TileNet()
optimizer = torch.optim.Adam(net.parameters(), lr=3e-3)
criterion = nn.CrossEntropyLoss()
for epoch in range(8):
    running_loss = 0.0
    for inputs, labels in loader:
        optimizer.zero_grad()
        outputs = net(inputs)
        loss = criterion(outputs, labels)
        loss.backward()
        optimizer.step()
        running_loss += loss.item()
    print(f"[{epoch + 1}] loss: {running_loss / len(loader):.3f}")
print("Finished Training")
torch.save(net.state_dict(), "tiles.pt")
