"""Leaf disease classification with a small Trainer class."""
from dataclasses import dataclass

import torch
import torch.nn as nn
from torch.utils.data import DataLoader, TensorDataset, random_split


@dataclass
class Config:
    epochs: int = 6
    batch_size: int = 32
    lr: float = 2e-3
    weight_decay: float = 1e-2
    dropout: float = 0.3
    seed: int = 1234


class ConvBlock(nn.Module):
    def __init__(self, cin, cout):
        super().__init__()
        self.conv = nn.Conv2d(cin, cout, 3, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(cout)
        self.act = nn.ReLU(inplace=True)
        self.pool = nn.MaxPool2d(2)

    def forward(self, x):
        return self.pool(self.act(self.norm(self.conv(x))))


class LeafNet(nn.Module):
    def __init__(self, n_classes, dropout):
        super().__init__()
        self.body = nn.Sequential(ConvBlock(3, 16), ConvBlock(16, 32), ConvBlock(32, 32))
        self.drop = nn.Dropout(dropout)
        self.fc = nn.Linear(32 * 4, n_classes)

    def forward(self, x):
        return self.fc(self.drop(self.body(x).flatten(1)))


def leaves(n):
    """Green leaves with spots: none, few large ones, many small ones."""
    y = torch.randint(0, 3, (n,))
    x = torch.rand(n, 3, 16, 16) * 0.3
    x[:, 1] += 0.5
    for i in range(n):
        for _ in range([0, 2, 6][int(y[i])]):
            r, c = torch.randint(0, 12, (2,)).tolist()
            s = 4 if y[i] == 1 else 2
            x[i, 0, r:r + s, c:c + s] += 0.4
    return TensorDataset(x, y)


class Trainer:
    def __init__(self, model, train_set, val_set, cfg):
        self.model, self.cfg = model, cfg
        self.train_loader = DataLoader(train_set, cfg.batch_size, shuffle=True, drop_last=True)
        self.val_loader = DataLoader(val_set, cfg.batch_size)
        self.criterion = nn.CrossEntropyLoss()
        self.optimizer = torch.optim.AdamW(model.parameters(), lr=cfg.lr, weight_decay=cfg.weight_decay)

    def train_epoch(self):
        total = 0.0
        for x, y in self.train_loader:
            self.optimizer.zero_grad(set_to_none=True)
            loss = self.criterion(self.model(x), y)
            loss.backward()
            self.optimizer.step()
            total += loss.item()
        return total / len(self.train_loader)

    @torch.no_grad()
    def validate(self):
        self.model.eval()
        total, right = 0.0, 0
        for x, y in self.val_loader:
            logits = self.model(x)
            total += self.criterion(logits, y).item() * len(y)
            right += (logits.argmax(1) == y).sum().item()
        n = len(self.val_loader.dataset)
        return total / n, right / n

    def fit(self):
        best = float("inf")
        self.model.train()
        for epoch in range(self.cfg.epochs):
            train_loss = self.train_epoch()
            val_loss, val_acc = self.validate()
            print(f"epoch {epoch} train {train_loss:.4f} val {val_loss:.4f} acc {val_acc:.3f}")
            if val_loss < best:
                best = val_loss
                torch.save(self.model.state_dict(), "best.pt")


if __name__ == "__main__":
    cfg = Config()
    torch.manual_seed(cfg.seed)
    train_set, val_set = random_split(leaves(640), [512, 128])
    Trainer(LeafNet(3, cfg.dropout), train_set, val_set, cfg).fit()
