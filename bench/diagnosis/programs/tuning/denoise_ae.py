"""Denoising autoencoder on mixtures of waves."""
import torch
import torch.nn as nn
import torch.nn.functional as F


class Encoder(nn.Module):
    def __init__(self, d_in, d_z):
        super().__init__()
        self.lin1 = nn.Linear(d_in, 64)
        self.lin2 = nn.Linear(64, d_z)

    def forward(self, x):
        return self.lin2(F.gelu(self.lin1(x)))


class Decoder(nn.Module):
    def __init__(self, d_z, d_out):
        super().__init__()
        self.lin1 = nn.Linear(d_z, 64)
        self.lin2 = nn.Linear(64, d_out)

    def forward(self, z):
        return self.lin2(F.gelu(self.lin1(z)))


class AutoEncoder(nn.Module):
    def __init__(self, d_in=40, d_z=6):
        super().__init__()
        self.encoder = Encoder(d_in, d_z)
        self.decoder = Decoder(d_z, d_in)
        self.last_code = None

    def forward(self, x):
        z = self.encoder(x).detach()
        self.last_code = z
        return self.decoder(z)


def waves(n, t):
    a = torch.rand(n, 3, 1) * 2 - 1
    f = torch.tensor([1.0, 2.0, 3.0]).view(1, 3, 1)
    phase = torch.rand(n, 3, 1) * 0.5
    return (a * torch.sin(6.28 * f * (t + phase))).sum(1)


def main():
    torch.manual_seed(3)
    t = torch.linspace(0, 1, 40).view(1, 1, -1)
    ae = AutoEncoder()
    optim = torch.optim.AdamW(ae.parameters(), lr=4e-3, weight_decay=0.0)
    codes = []
    for step in range(120):
        clean = waves(96, t)
        noisy = clean + 0.1 * torch.randn_like(clean)
        rec = ae(noisy)
        loss = F.mse_loss(rec, clean)
        optim.zero_grad()
        loss.backward()
        optim.step()
        codes.append(ae.last_code[0].tolist())
        if step % 30 == 0:
            print("step", step, "loss", round(loss.item(), 5))
    clean = waves(500, t)
    with torch.no_grad():
        print("final loss", round(F.mse_loss(ae(clean), clean).item(), 5))
    torch.save(ae.state_dict(), "ae.pt")


if __name__ == "__main__":
    main()
