"""A VQ-VAE for woven textures."""
import torch
import torch.nn as nn
import torch.nn.functional as F


class Quantizer(nn.Module):
    def __init__(self, n_codes, dim, beta=0.25):
        super().__init__()
        self.codebook = nn.Embedding(n_codes, dim)
        self.codebook.weight.data.uniform_(-1.0, 1.0)
        self.beta = beta

    def forward(self, z):
        flat = z.permute(0, 2, 3, 1)
        distances = torch.cdist(flat.reshape(-1, flat.shape[-1]), self.codebook.weight)
        codes = distances.argmin(1)
        q = self.codebook(codes).view_as(flat).permute(0, 3, 1, 2)
        book_loss = F.mse_loss(q, z.detach()) + self.beta * F.mse_loss(z.detach(), q.detach())
        return q, book_loss, codes


class VQVAE(nn.Module):
    def __init__(self, dim=8, n_codes=24):
        super().__init__()
        self.encoder = nn.Sequential(
            nn.Conv2d(1, 24, 4, 2, 1), nn.ReLU(), nn.Conv2d(24, 24, 4, 2, 1), nn.ReLU(), nn.Conv2d(24, dim, 1)
        )
        self.quantizer = Quantizer(n_codes, dim)
        self.decoder = nn.Sequential(
            nn.Conv2d(dim, 24, 3, padding=1), nn.ReLU(),
            nn.ConvTranspose2d(24, 24, 4, 2, 1), nn.ReLU(),
            nn.ConvTranspose2d(24, 1, 4, 2, 1),
        )

    def forward(self, x):
        q, book_loss, codes = self.quantizer(self.encoder(x))
        return self.decoder(q), book_loss, codes


def textures(n, side=16):
    i = torch.arange(side).float()
    fx, fy = torch.rand(2, n, 1, 1, 1) * 1.2 + 0.2
    phase = torch.rand(n, 1, 1, 1) * 6.28
    return torch.sin(fx * i.view(1, 1, 1, -1) + fy * i.view(1, 1, -1, 1) + phase)


torch.manual_seed(8)
model = VQVAE()
optimizer = torch.optim.Adam(model.parameters(), lr=4e-3)
for it in range(150):
    x = textures(32)
    out, book_loss, codes = model(x)
    recon = F.mse_loss(out, x)
    optimizer.zero_grad()
    (recon + book_loss).backward()
    optimizer.step()
    if it % 25 == 0 or it == 149:
        print(f"it {it} recon {recon.item():.4f} book {book_loss.item():.4f} used {codes.unique().numel()}")
torch.save(model.state_dict(), "vqvae.pt")
