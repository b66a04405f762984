"""DCGAN for short waves: spectral norm, smoothed labels, one weight initialisation for all, two time scales."""
import torch
import torch.nn as nn
from torch.nn.utils.parametrizations import spectral_norm


def weights_init(m):
    if isinstance(m, (nn.Conv1d, nn.ConvTranspose1d)):
        nn.init.normal_(m.weight, 0.0, 0.05)
    elif isinstance(m, nn.BatchNorm1d):
        nn.init.normal_(m.weight, 1.0, 0.02)
        nn.init.zeros_(m.bias)


class Generator(nn.Module):
    def __init__(self, nz=8, ngf=16):
        super().__init__()
        self.main = nn.Sequential(
            nn.ConvTranspose1d(nz, 2 * ngf, 4, bias=False), nn.BatchNorm1d(2 * ngf), nn.ReLU(True),
            nn.ConvTranspose1d(2 * ngf, ngf, 4, 2, 1, bias=False), nn.BatchNorm1d(ngf), nn.ReLU(True),
            nn.ConvTranspose1d(ngf, 1, 4, 2, 1), nn.Tanh(),
        )

    def forward(self, z):
        return self.main(z)


class Discriminator(nn.Module):
    def __init__(self, ndf=16):
        super().__init__()
        self.main = nn.Sequential(
            spectral_norm(nn.Conv1d(1, ndf, 4, 2, 1)), nn.LeakyReLU(0.2, True),
            spectral_norm(nn.Conv1d(ndf, 2 * ndf, 4, 2, 1)), nn.LeakyReLU(0.2, True),
            spectral_norm(nn.Conv1d(2 * ndf, 1, 4)),
        )

    def forward(self, x):
        return self.main(x).view(-1)


def waves(n):
    t = torch.arange(16).float()
    phase = 6.28 * torch.rand(n, 1)
    return (0.8 * torch.sin(0.8 * t + phase)).unsqueeze(1)


def gap(fake, real):
    """Difference of the mean spectra."""
    a, b = (torch.fft.rfft(x.squeeze(1)).abs().mean(0) for x in (fake, real))
    return (a - b).abs().mean().item()


if __name__ == "__main__":
    torch.manual_seed(999)
    netG, netD = Generator(), Discriminator()
    netG.apply(weights_init)
    optimizerD = torch.optim.Adam(netD.parameters(), lr=4e-3, betas=(0.5, 0.999))
    optimizerG = torch.optim.Adam(netG.parameters(), lr=2e-3, betas=(0.5, 0.999))
    criterion = nn.BCEWithLogitsLoss()
    for i in range(240):
        real = waves(32)
        netD.zero_grad()
        errD_real = criterion(netD(real), torch.full((32,), 0.9))
        errD_real.backward()
        fake = netG(torch.randn(32, 8, 1))
        errD_fake = criterion(netD(fake.detach()), torch.zeros(32))
        errD_fake.backward()
        optimizerD.step()

        netG.zero_grad()
        errG = criterion(netD(fake), torch.ones(32))
        errG.backward()
        optimizerG.step()
        if i % 40 == 0 or i == 239:
            with torch.no_grad():
                g = gap(netG(torch.randn(256, 8, 1)), waves(256))
            print(f"[{i}/240] Loss_D: {(errD_real + errD_fake).item():.3f} Loss_G: {errG.item():.3f} gap: {g:.4f}")
    torch.save(netG.state_dict(), "netG.pt")
