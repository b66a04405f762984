"""Energy use of buildings; 16 micro batches make one batch."""
import torch
from torch import nn


class EnergyModel(nn.Module):
    def __init__(self, d_in=10, d_hidden=64):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(d_in, d_hidden), nn.Tanh(), nn.Linear(d_hidden, d_hidden), nn.Tanh())
        self.readout = nn.Linear(d_hidden, 1)

    def forward(self, x):
        return self.readout(self.net(x)).squeeze(-1)


def micro_batch(w):
    x = torch.randn(16, 10)
    return x, 2 * (x @ w).tanh() + x[:, 0] * x[:, 1]


torch.manual_seed(12)
w = torch.randn(10) * 0.5
accum_steps = 16
model = EnergyModel()
optimizer = torch.optim.SGD(model.parameters(), lr=0.03, momentum=0.9)
criterion = nn.MSELoss()

optimizer.zero_grad()
running = 0.0
for i in range(1, 16 * 60 + 1):
    x, y = micro_batch(w)
    loss = criterion(model(x), y)
    loss.backward()
    running += loss.item()
    if i % accum_steps == 0:
        optimizer.step()
        optimizer.zero_grad()
        if i % (accum_steps * 10) == 0:
            print(f"update {i // accum_steps} error {running / (accum_steps * 10):.4f}")
            running = 0.0
torch.save(model.state_dict(), "energy.pt")
