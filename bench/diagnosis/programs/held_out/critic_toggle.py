"""Wasserstein GAN; the critic is frozen for the generator's step and thawed again."""
import torch
import torch.nn as nn

torch.manual_seed(72)


class Critic(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(2, 48), nn.LeakyReLU(0.2), nn.Linear(48, 48), nn.LeakyReLU(0.2), nn.Linear(48, 1))

    def forward(self, x):
        return self.net(x)


class Generator(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(4, 48), nn.ReLU(), nn.Linear(48, 2))

    def forward(self, z):
        return self.net(z)


def toggle(module, flag):
    for p in module.parameters():
        p.requires_grad_(flag)


def real(n):
    return torch.randn(n, 2) * torch.tensor([0.6, 0.3]) + torch.tensor([1.5, 2.0])


def distance(G):
    with torch.no_grad():
        return (G(torch.randn(500, 4)).mean(0) - real(500).mean(0)).norm().item()


C, G = Critic(), Generator()
opt_c = torch.optim.Adam(C.parameters(), lr=2e-3, betas=(0.0, 0.9))
opt_g = torch.optim.Adam(G.parameters(), lr=2e-3, betas=(0.0, 0.9))
print("start distance %.4f" % distance(G))
for step in range(100):
    toggle(C, True)
    x, fake = real(64), G(torch.randn(64, 4)).detach()
    mix = torch.rand(64, 1)
    mid = (mix * x + (1 - mix) * fake).requires_grad_(True)
    grad, = torch.autograd.grad(C(mid).sum(), mid, create_graph=True)
    loss_c = C(fake).mean() - C(x).mean() + 10 * (grad.norm(dim=1) - 1).pow(2).mean()
    opt_c.zero_grad()
    loss_c.backward()
    opt_c.step()

    toggle(C, False)
    loss_g = -C(G(torch.randn(64, 4))).mean()
    opt_g.zero_grad()
    loss_g.backward()
    opt_g.step()
    if step % 25 == 24:
        print("step %d distance %.4f" % (step + 1, distance(G)))
torch.save({"C": C.state_dict(), "G": G.state_dict()}, "wgan.pt")
