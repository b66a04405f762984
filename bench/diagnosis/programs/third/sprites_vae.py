"""Variational autoencoder for small sprites."""
import argparse

import torch
import torch.nn as nn
import torch.nn.functional as F


class VAE(nn.Module):
    def __init__(self, latent=6):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 16, 4, stride=2, padding=1)
        self.conv2 = nn.Conv2d(16, 32, 4, stride=2, padding=1)
        self.fc_mu = nn.Linear(32 * 9, latent)
        self.fc_logvar = nn.Linear(32 * 9, latent)
        self.fc_dec = nn.Linear(latent, 32 * 9)
        self.deconv1 = nn.ConvTranspose2d(32, 16, 4, stride=2, padding=1)
        self.deconv2 = nn.ConvTranspose2d(16, 1, 4, stride=2, padding=1)

    def encode(self, x):
        h = F.relu(self.conv2(F.relu(self.conv1(x)))).flatten(1)
        return self.fc_mu(h), self.fc_logvar(h)

    def reparameterize(self, mu, logvar):
        std = torch.exp(0.5 * logvar)
        return mu + std * torch.randn_like(std)

    def decode(self, z):
        h = F.relu(self.fc_dec(z)).view(-1, 32, 3, 3)
        return torch.sigmoid(self.deconv2(F.relu(self.deconv1(h))))

    def forward(self, x):
        mu, logvar = self.encode(x)
        return self.decode(self.reparameterize(mu, logvar)), mu, logvar


def loss_function(recon_x, x, mu, logvar):
    rec = F.binary_cross_entropy(recon_x, x)
    kld = -0.5 * torch.sum(1 + logvar - mu.pow(2) - logvar.exp())
    return rec + kld, rec


def sprites(n):
    axis = torch.arange(12)
    top, left = torch.randint(0, 7, (n, 1, 1)), torch.randint(0, 7, (n, 1, 1))
    h, w = torch.randint(3, 6, (n, 1, 1)), torch.randint(3, 6, (n, 1, 1))
    rows, cols = axis.view(1, 12, 1), axis.view(1, 1, 12)
    return ((rows >= top) & (rows < top + h) & (cols >= left) & (cols < left + w)).float().unsqueeze(1)


def train(args):
    torch.manual_seed(args.seed)
    model = VAE()
    optimizer = torch.optim.Adam(model.parameters(), lr=args.lr)
    model.train()
    for epoch in range(1, args.epochs + 1):
        train_loss, train_rec = 0.0, 0.0
        for _ in range(20):
            data = sprites(args.batch_size)
            optimizer.zero_grad()
            recon, mu, logvar = model(data)
            loss, rec = loss_function(recon, data, mu, logvar)
            loss.backward()
            optimizer.step()
            train_loss += loss.item()
            train_rec += rec.item()
        print(f"====> Epoch: {epoch} loss: {train_loss / 20:.4f} rec: {train_rec / 20:.4f}")
    torch.save(model.state_dict(), "vae.pt")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="VAE example")
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--lr", type=float, default=4e-3)
    parser.add_argument("--seed", type=int, default=1)
    train(parser.parse_args())
