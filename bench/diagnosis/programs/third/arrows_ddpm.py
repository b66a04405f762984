"""Denoising diffusion for 2-D arrows, trained by steps rather than epochs."""
import math

import torch
import torch.nn as nn
from torch.utils.data import DataLoader, TensorDataset

T = 50


class SinusoidalEmbedding(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.dim = dim

    def forward(self, t):
        freq = torch.exp(-math.log(1000) * torch.arange(self.dim // 2) / (self.dim // 2))
        args = t.float().unsqueeze(1) * freq
        return torch.cat([args.sin(), args.cos()], 1)


class Denoiser(nn.Module):
    def __init__(self, dim=16, hidden=96):
        super().__init__()
        self.time = SinusoidalEmbedding(32)
        self.inp = nn.Linear(dim + 32, hidden)
        self.mid1 = nn.Linear(hidden, hidden)
        self.mid2 = nn.Linear(hidden, hidden)
        self.out = nn.Linear(hidden, dim)
        self.act = nn.SiLU()

    def forward(self, x, t):
        h = self.act(self.inp(torch.cat([x, self.time(t)], 1)))
        h = h + self.act(self.mid1(h))
        h = h + self.act(self.mid2(h))
        return self.out(h)


def arrows(n):
    """Eight points along an arrow of some direction and length, somewhere."""
    angle = 2 * math.pi * torch.rand(n, 1)
    along = torch.linspace(-1, 1, 8) * (0.3 + torch.rand(n, 1))
    cx, cy = torch.randn(2, n, 1)
    return torch.cat([cx + angle.cos() * along, cy + angle.sin() * along], 1) + 0.02 * torch.randn(n, 16)


class Diffusion:
    def __init__(self):
        self.alpha_bar = torch.cumprod(1 - torch.linspace(1e-3, 0.12, T), 0)

    def noised(self, x0, t, noise):
        a = self.alpha_bar[t].unsqueeze(1)
        return a.sqrt() * x0 + (1 - a).sqrt() * noise


torch.manual_seed(6)
train_loader = DataLoader(TensorDataset(arrows(1024)), batch_size=8)
test = arrows(512)
test_t, test_noise = torch.randint(0, T, (512,)), torch.randn(512, 16)
model, diffusion = Denoiser(), Diffusion()
optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)

for step in range(900):
    (x0,) = next(iter(train_loader))
    t = torch.randint(0, T, (len(x0),))
    noise = torch.randn_like(x0)
    loss = nn.functional.mse_loss(model(diffusion.noised(x0, t, noise), t), noise)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 150 == 0 or step == 899:
        with torch.no_grad():
            held = nn.functional.mse_loss(model(diffusion.noised(test, test_t, test_noise), test_t), test_noise)
        print(f"step {step} train {loss.item():.4f} test {held.item():.4f}")
torch.save(model.state_dict(), "ddpm.pt")
