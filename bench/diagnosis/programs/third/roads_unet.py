"""Road segmentation: pictures are large, so gradients of several small batches make one step."""
import argparse

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset


class DoubleConv(nn.Module):
    def __init__(self, cin, cout):
        super().__init__()
        self.conv1 = nn.Conv2d(cin, cout, 3, padding=1)
        self.norm1 = nn.GroupNorm(4, cout)
        self.conv2 = nn.Conv2d(cout, cout, 3, padding=1)
        self.norm2 = nn.GroupNorm(4, cout)

    def forward(self, x):
        x = F.relu(self.norm1(self.conv1(x)))
        return F.relu(self.norm2(self.conv2(x)))


class UNet(nn.Module):
    def __init__(self, width=8):
        super().__init__()
        self.inc = DoubleConv(3, width)
        self.down1 = DoubleConv(width, 2 * width)
        self.down2 = DoubleConv(2 * width, 4 * width)
        self.up1 = nn.ConvTranspose2d(4 * width, 2 * width, 2, stride=2)
        self.dec1 = DoubleConv(4 * width, 2 * width)
        self.up2 = nn.ConvTranspose2d(2 * width, width, 2, stride=2)
        self.dec2 = DoubleConv(2 * width, width)
        self.outc = nn.Conv2d(width, 1, 1)

    def forward(self, x):
        a = self.inc(x)
        b = self.down1(F.max_pool2d(a, 2))
        c = self.down2(F.max_pool2d(b, 2))
        x = self.dec1(torch.cat([b, self.up1(c)], 1))
        x = self.dec2(torch.cat([a, self.up2(x)], 1))
        return self.outc(x)


class Roads(Dataset):
    """Grey roads over a noisy green plain, with grey houses that are no roads."""

    def __init__(self, n, side=24):
        self.images, self.masks = [], []
        for _ in range(n):
            img = 0.35 * torch.rand(3, side, side)
            img[1] += 0.25
            mask = torch.zeros(1, side, side)
            where = int(torch.randint(2, side - 5, (1,)))
            if torch.rand(1) < 0.5:
                mask[:, where:where + 3, :] = 1
            else:
                mask[:, :, where:where + 3] = 1
            for _ in range(3):
                r, c = torch.randint(0, side - 5, (2,)).tolist()
                img[:, r:r + 5, c:c + 5] = 0.5 + 0.1 * torch.randn(3, 5, 5)
            img = torch.where(mask.bool(), 0.5 + 0.1 * torch.randn(3, side, side), img)
            self.images.append(img)
            self.masks.append(mask)

    def __len__(self):
        return len(self.images)

    def __getitem__(self, i):
        return self.images[i], self.masks[i]


def train(args):
    torch.manual_seed(args.seed)
    loader = DataLoader(Roads(160), batch_size=args.batch_size, shuffle=True)
    net = UNet()
    optimizer = torch.optim.SGD(net.parameters(), lr=args.lr, momentum=0.9)
    criterion = nn.BCEWithLogitsLoss()
    for epoch in range(args.epochs):
        net.train()
        epoch_loss = 0.0
        for i, (image, mask) in enumerate(loader):
            optimizer.zero_grad()
            loss = criterion(net(image), mask)
            (loss / args.accumulate).backward()
            if (i + 1) % args.accumulate == 0:
                optimizer.step()
            epoch_loss += loss.item()
        print(f"epoch {epoch + 1} loss {epoch_loss / len(loader):.4f}")
    torch.save(net.state_dict(), "roads.pt")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Train the UNet on roads")
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--batch-size", type=int, default=2)
    parser.add_argument("--accumulate", type=int, default=8)
    parser.add_argument("--lr", type=float, default=0.05)
    parser.add_argument("--seed", type=int, default=7)
    train(parser.parse_args())
