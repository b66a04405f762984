"""GAN with feature matching for one-dimensional signals."""
import torch
import torch.nn as nn
import torch.nn.functional as F


class Discriminator(nn.Module):
    def __init__(self, n=24):
        super().__init__()
        self.features = nn.Sequential(nn.Linear(n, 48), nn.LeakyReLU(0.2), nn.Linear(48, 24), nn.LeakyReLU(0.2))
        self.score = nn.Linear(24, 1)

    def forward(self, x):
        f = self.features(x)
        return self.score(f), f


class Generator(nn.Module):
    def __init__(self, n=24):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(6, 48), nn.ReLU(), nn.Linear(48, n))

    def forward(self, z):
        return self.net(z)


def set_requires_grad(module, flag):
    for p in module.parameters():
        p.requires_grad = flag


def signals(n):
    t = torch.linspace(0, 1, 24)
    return torch.sin(6.28 * (2 * t + torch.rand(n, 1))) * (0.5 + torch.rand(n, 1))


torch.manual_seed(71)
D, G = Discriminator(), Generator()
opt_d = torch.optim.Adam(D.parameters(), lr=2e-3)
opt_g = torch.optim.Adam(G.parameters(), lr=2e-3)
for step in range(90):
    x = signals(64)
    fake = G(torch.randn(64, 6))
    r, f = D(x)[0], D(fake.detach())[0]
    loss_d = F.softplus(-r).mean() + F.softplus(f).mean()
    opt_d.zero_grad()
    loss_d.backward()
    opt_d.step()

    set_requires_grad(D.features, False)
    score, feat = D(fake)
    loss_g = F.softplus(-score).mean() + F.mse_loss(feat.mean(0), D(x)[1].mean(0).detach())
    opt_g.zero_grad()
    loss_g.backward()
    opt_g.step()
    if step % 15 == 0 or step == 89:
        print("step %d critic %.4f generator %.4f" % (step, loss_d.item(), loss_g.item()))
torch.save({"D": D.state_dict(), "G": G.state_dict()}, "fgan.pt")
