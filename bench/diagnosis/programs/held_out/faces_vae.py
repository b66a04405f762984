"""VAE on smooth curves. Sampling is done in numpy so that it can be shared with the plotting code."""
import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F


class VAE(nn.Module):
    def __init__(self, d=32, z=4):
        super().__init__()
        self.enc = nn.Sequential(nn.Linear(d, 48), nn.ReLU())
        self.fc_mu = nn.Linear(48, z)
        self.fc_logvar = nn.Linear(48, z)
        self.dec = nn.Sequential(nn.Linear(z, 48), nn.ReLU(), nn.Linear(48, d))

    def reparameterize(self, mu, logvar):
        m, s = mu.detach().numpy(), np.exp(0.5 * logvar.detach().numpy())
        noise = rng.standard_normal(m.shape).astype("float32")
        return torch.from_numpy(m + s * noise)

    def forward(self, x):
        h = self.enc(x)
        mu, logvar = self.fc_mu(h), self.fc_logvar(h)
        return self.dec(self.reparameterize(mu, logvar)), mu, logvar


def curves(n):
    t = torch.linspace(-1, 1, 32)
    c = torch.randn(n, 3, 1)
    return c[:, 0] * t + c[:, 1] * t**2 + c[:, 2] * torch.sin(3 * t)


rng = np.random.default_rng(0)
torch.manual_seed(0)
vae = VAE()
optimizer = torch.optim.Adam(vae.parameters(), lr=5e-3)
for step in range(110):
    x = curves(96)
    recon, mu, logvar = vae(x)
    mse = F.mse_loss(recon, x)
    kld = -0.5 * torch.mean(1 + logvar - mu.pow(2) - logvar.exp())
    loss = mse + 0.01 * kld
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 20 == 0 or step == 109:
        print(f"step {step} rec {mse.item():.4f} kld {kld.item():.4f}")
torch.save(vae.state_dict(), "vae.pt")
