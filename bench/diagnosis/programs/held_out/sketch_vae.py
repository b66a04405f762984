"""VAE on little sketches."""
import torch
from torch import nn
from torch.nn import functional as F


class SketchVAE(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc1 = nn.Linear(64, 48)
        self.fc21 = nn.Linear(48, 5)
        self.fc22 = nn.Linear(48, 5)
        self.fc3 = nn.Linear(5, 48)
        self.fc4 = nn.Linear(48, 64)

    def encode(self, x):
        h1 = F.relu(self.fc1(x))
        return self.fc21(h1), self.fc22(h1)

    def reparameterize(self, mu, logvar):
        std = torch.exp(0.5 * logvar)
        return mu + torch.randn_like(std) * std

    def decode(self, z):
        return torch.sigmoid(self.fc4(F.relu(self.fc3(z))))

    def forward(self, x):
        mu, logvar = self.encode(x)
        return self.decode(self.reparameterize(mu, logvar)), mu, logvar


def loss_function(recon_x, x, mu, logvar):
    bce = F.binary_cross_entropy(recon_x, x, reduction="sum") / len(x)
    kld = 0.5 * torch.sum(1 + logvar - mu.pow(2) - logvar.exp()) / len(x)
    return bce + kld, bce, kld


def sketches(n):
    g = torch.Generator().manual_seed(6)
    strokes = (torch.rand(5, 64, generator=g) > 0.7).float()
    on = (torch.rand(n, 5) > 0.5).float()
    return (on @ strokes).clamp(0, 1)


torch.manual_seed(1)
model = SketchVAE()
optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
for step in range(100):
    data = sketches(64)
    optimizer.zero_grad()
    recon, mu, logvar = model(data)
    loss, bce, kld = loss_function(recon, data, mu, logvar)
    loss.backward()
    optimizer.step()
    if step % 20 == 0 or step == 99:
        print("step {} bce {:.3f} total {:.3f}".format(step, bce.item(), loss.item()))
torch.save(model.state_dict(), "sketch.pt")
