"""VAE with summed losses, as in the examples of PyTorch."""
import torch
from torch import nn
from torch.nn import functional as F


class VAE(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc1 = nn.Linear(49, 40)
        self.fc21 = nn.Linear(40, 4)
        self.fc22 = nn.Linear(40, 4)
        self.fc3 = nn.Linear(4, 40)
        self.fc4 = nn.Linear(40, 49)

    def forward(self, x):
        h = F.relu(self.fc1(x))
        mu, logvar = self.fc21(h), self.fc22(h)
        z = mu + torch.randn_like(mu) * torch.exp(0.5 * logvar)
        return torch.sigmoid(self.fc4(F.relu(self.fc3(z)))), mu, logvar


def stamps(n):
    g = torch.Generator().manual_seed(9)
    parts = (torch.rand(4, 49, generator=g) > 0.65).float()
    return ((torch.rand(n, 4) > 0.5).float() @ parts).clamp(0, 1)


torch.manual_seed(2)
model = VAE()
optimizer = torch.optim.Adam(model.parameters(), lr=4e-3)
for step in range(110):
    x = stamps(64)
    recon, mu, logvar = model(x)
    bce = F.binary_cross_entropy(recon, x, reduction="sum")
    kld = -0.5 * torch.sum(1 + logvar - mu.pow(2) - logvar.exp())
    loss = bce + kld
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 22 == 0 or step == 109:
        print("step {} loss {:.2f}".format(step, loss.item()))
torch.save(model.state_dict(), "stamps.pt")
