"""A GAN for the weight and size of coins, generator and discriminator in one module."""
import torch
import torch.nn as nn


class GAN(nn.Module):
    def __init__(self, z_dim=8, hidden=48):
        super().__init__()
        self.z_dim = z_dim
        self.generator = nn.Sequential(
            nn.Linear(z_dim, hidden), nn.LeakyReLU(0.2),
            nn.Linear(hidden, hidden), nn.LeakyReLU(0.2),
            nn.Linear(hidden, 2),
        )
        self.discriminator = nn.Sequential(
            nn.Linear(2, hidden), nn.LeakyReLU(0.2),
            nn.Linear(hidden, hidden), nn.LeakyReLU(0.2),
            nn.Linear(hidden, 1),
        )

    def sample(self, n):
        return self.generator(torch.randn(n, self.z_dim))


def coins(n):
    kinds = torch.tensor([[-1.0, -0.8], [0.1, 0.9], [1.1, -0.2]])
    return kinds[torch.randint(0, 3, (n,))] + 0.08 * torch.randn(n, 2)


def distance(a, b):
    """Energy distance between two samples."""
    return (2 * torch.cdist(a, b).mean() - torch.cdist(a, a).mean() - torch.cdist(b, b).mean()).item()


torch.manual_seed(13)
gan = GAN()
bce = nn.BCEWithLogitsLoss()
optimizer_D = torch.optim.Adam(gan.discriminator.parameters(), lr=1e-3, betas=(0.5, 0.999))
optimizer_G = torch.optim.Adam(gan.parameters(), lr=1e-3, betas=(0.5, 0.999))

for i in range(500):
    real = coins(64)
    ones, zeros = torch.ones(64, 1), torch.zeros(64, 1)

    # train the discriminator
    fake = gan.sample(64)
    d_loss = bce(gan.discriminator(real), ones) + bce(gan.discriminator(fake.detach()), zeros)
    optimizer_D.zero_grad()
    d_loss.backward()
    optimizer_D.step()

    # train the generator
    g_loss = bce(gan.discriminator(gan.sample(64)), ones)
    optimizer_G.zero_grad()
    g_loss.backward()
    optimizer_G.step()

    if i % 100 == 0 or i == 499:
        with torch.no_grad():
            d = distance(gan.sample(512), coins(512))
        print(f"{i} D {d_loss.item():.3f} G {g_loss.item():.3f} distance {d:.4f}")
torch.save(gan.state_dict(), "gan.pt")
