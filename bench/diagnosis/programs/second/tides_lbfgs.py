"""Tides as a sum of learnt waves and a small net, by L-BFGS."""
import torch
from torch import nn


class Tide(nn.Module):
    def __init__(self, waves=4, width=16):
        super().__init__()
        self.amplitude = nn.Parameter(0.1 * torch.ones(waves))
        self.phase = nn.Parameter(torch.linspace(0, 3, waves))
        self.register_buffer("frequency", torch.tensor([1.0, 1.93, 2.0, 3.87])[:waves])
        self.rest = nn.Sequential(nn.Linear(1, width), nn.Tanh(), nn.Linear(width, 1))

    def forward(self, t):
        waves = self.amplitude * torch.sin(self.frequency * t + self.phase)
        return waves.sum(1, keepdim=True) + self.rest(t / 20)


torch.manual_seed(99)
t = torch.linspace(0, 20, 400).unsqueeze(1)
height = 1.2 * torch.sin(1.93 * t + 0.4) + 0.5 * torch.sin(t - 1) + 0.02 * t + 0.05 * torch.randn(400, 1)
model = Tide()
optimizer = torch.optim.LBFGS(model.parameters(), lr=0.5, max_iter=8, history_size=10)


def closure():
    optimizer.zero_grad()
    loss = nn.functional.mse_loss(model(t), height)
    loss.backward()
    return loss


for step in range(40):
    loss = optimizer.step(closure)
    if step % 8 == 0 or step == 39:
        print(f"step {step} loss {loss.item():.6f}")
torch.save(model.state_dict(), "tides.pt")
