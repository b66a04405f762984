"""Patches of a picture classified by a small ViT; large batches in pieces."""
import argparse

import torch
from torch import nn


class PatchNet(nn.Module):
    def __init__(self, patch=4, side=12, dim=32, classes=5):
        super().__init__()
        self.embed = nn.Conv2d(1, dim, patch, stride=patch)
        self.pos = nn.Parameter(0.02 * torch.randn(1, (side // patch) ** 2, dim))
        layer = nn.TransformerEncoderLayer(dim, 4, 64, 0.0, batch_first=True, norm_first=True)
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.norm = nn.LayerNorm(dim)
        self.head = nn.Linear(dim, classes)

    def forward(self, x):
        x = self.embed(x).flatten(2).transpose(1, 2) + self.pos
        return self.head(self.norm(self.encoder(x)).mean(1))


def get_args():
    p = argparse.ArgumentParser()
    p.add_argument("--steps", type=int, default=60)
    p.add_argument("--micro", type=int, default=16)
    p.add_argument("--pieces", type=int, default=12)
    p.add_argument("--lr", type=float, default=0.05)
    return p.parse_args()


def main(args):
    torch.manual_seed(9)
    protos = torch.randn(5, 1, 12, 12)
    model = PatchNet()
    opt = torch.optim.SGD(model.parameters(), lr=args.lr, momentum=0.9)
    loss_fn = nn.CrossEntropyLoss()
    for step in range(args.steps):
        opt.zero_grad()
        total = 0.0
        for _ in range(args.pieces):
            y = torch.randint(0, 5, (args.micro,))
            x = 0.5 * protos[y] + torch.randn(args.micro, 1, 12, 12)
            loss = loss_fn(model(x), y)
            loss.backward()
            total += loss.item() / args.pieces
        opt.step()
        if step % 10 == 9:
            print(f"step {step + 1} loss {total:.4f}")
    torch.save(model.state_dict(), "patchnet.pt")


if __name__ == "__main__":
    main(get_args())
