"""A GAN that learns where a cloud of points is and how it is stretched."""
import torch
import torch.nn as nn

torch.manual_seed(16)


MIX = torch.tensor([[0.8, 0.3], [0.0, 0.4]])


def real(n):
    return torch.randn(n, 2) @ MIX + torch.tensor([2.0, -1.0])


G = nn.Sequential(nn.Linear(8, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 2))
D = nn.Sequential(nn.Linear(2, 64), nn.LeakyReLU(0.2), nn.Linear(64, 64), nn.LeakyReLU(0.2), nn.Linear(64, 1))
optG = torch.optim.Adam(G.parameters(), lr=2e-3, betas=(0.5, 0.999))
optD = torch.optim.Adam(D.parameters(), lr=2e-3, betas=(0.5, 0.999))
bce = nn.BCEWithLogitsLoss()
ones, zeros = torch.ones(96, 1), torch.zeros(96, 1)


def distance():
    with torch.no_grad():
        fake, data = G(torch.randn(500, 8)), real(500)
    return ((fake.mean(0) - data.mean(0)).norm() + (fake.T.cov() - data.T.cov()).norm()).item()


print("before: distance %.4f" % distance())
for step in range(120):
    fake = G(torch.randn(96, 8))
    loss_d = bce(D(real(96)), ones) + bce(D(fake.detach()), zeros)
    optD.zero_grad()
    loss_d.backward()
    optD.step()

    loss_g = bce(D(fake), ones)
    optG.zero_grad()
    loss_g.backward()
    optG.step()
    if step % 40 == 39:
        print("step %d D %.3f G %.3f distance %.4f" % (step + 1, loss_d.item(), loss_g.item(), distance()))
torch.save({"g": G.state_dict(), "d": D.state_dict()}, "gan.pt")
