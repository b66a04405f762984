"""Fraud or not."""
import torch
import torch.nn as nn
import torch.nn.functional as F


class FraudNet(nn.Module):
    def __init__(self, n_in=16):
        super().__init__()
        self.fc1 = nn.Linear(n_in, 32)
        self.fc2 = nn.Linear(32, 16)
        self.fc3 = nn.Linear(16, 1)

    def forward(self, x):
        x = F.relu(self.fc1(x))
        x = F.relu(self.fc2(x))
        return F.softmax(self.fc3(x), dim=1)


def transactions(n):
    x = torch.randn(n, 16)
    y = (x[:, :4].sum(1) + x[:, 4] * x[:, 5] > 1.5).float()
    return x, y.unsqueeze(1)


torch.manual_seed(4)
model = FraudNet()
loss_fn = nn.BCELoss()
optimizer = torch.optim.Adam(model.parameters(), lr=0.005)
losses = []
for step in range(100):
    x, y = transactions(96)
    p = model(x)
    loss = loss_fn(p, y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
    if step % 20 == 19:
        print("step", step + 1, "loss", round(sum(losses[-20:]) / 20, 4))
torch.save(model.state_dict(), "fraud.pt")
