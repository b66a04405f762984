"""Convolutional autoencoder for scanned stamps."""
import numpy as np
import torch
import torch.nn as nn
from torch.utils.data import DataLoader, Dataset


class StampDataset(Dataset):
    """8-bit grey pictures: a frame, and a disc of some size and brightness in it."""

    def __init__(self, n, side=16, seed=0):
        rng = np.random.default_rng(seed)
        yy, xx = np.mgrid[:side, :side]
        self.images = np.zeros((n, side, side), dtype=np.uint8)
        for image in self.images:
            image += rng.integers(0, 40, (side, side), dtype=np.uint8)
            image[[0, -1]] = 200
            image[:, [0, -1]] = 200
            cy, cx, r = rng.uniform(5, 11), rng.uniform(5, 11), rng.uniform(2, 5)
            image[(yy - cy) ** 2 + (xx - cx) ** 2 < r * r] = rng.integers(90, 255)

    def __len__(self):
        return len(self.images)

    def __getitem__(self, idx):
        return torch.from_numpy(self.images[idx]).float().unsqueeze(0)


class ConvAutoencoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = nn.Sequential(
            nn.Conv2d(1, 16, 3, stride=2, padding=1),
            nn.ReLU(),
            nn.Conv2d(16, 16, 3, stride=2, padding=1),
            nn.ReLU(),
        )
        self.decoder = nn.Sequential(
            nn.ConvTranspose2d(16, 16, 2, stride=2),
            nn.ReLU(),
            nn.ConvTranspose2d(16, 1, 2, stride=2),
            nn.Sigmoid(),
        )

    def forward(self, x):
        return self.decoder(self.encoder(x))


def main(num_epochs=10):
    torch.manual_seed(0)
    loader = DataLoader(StampDataset(256), batch_size=32, shuffle=True)
    model = ConvAutoencoder()
    criterion = nn.MSELoss()
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3, weight_decay=1e-5)
    for epoch in range(num_epochs):
        total, power = 0.0, 0.0
        for img in loader:
            recon = model(img)
            loss = criterion(recon, img)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.item()
            power += img.pow(2).mean().item()
        print(f"epoch:{epoch + 1}, loss:{total / len(loader):.4f}, relative error {total / power:.4f}")
    torch.save(model.state_dict(), "conv_autoencoder.pt")


if __name__ == "__main__":
    main()
