"""Bike rentals from station, weekday and weather codes and a few numbers."""
from dataclasses import dataclass

import torch
from torch import nn


@dataclass
class Config:
    stations: int = 24
    days: int = 7
    weathers: int = 5
    emb: int = 2
    hidden: int = 48
    lr: float = 5e-3
    weight_decay: float = 1e-2
    steps: int = 160
    batch: int = 128
    seed: int = 3


class RentalNet(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.station = nn.Embedding(cfg.stations, cfg.emb)
        self.day = nn.Embedding(cfg.days, cfg.emb)
        self.weather = nn.Embedding(cfg.weathers, cfg.emb)
        for table in (self.station, self.day, self.weather):
            nn.init.normal_(table.weight, std=0.02)
        self.fc1 = nn.Linear(3 * cfg.emb + 4, cfg.hidden)
        self.norm = nn.LayerNorm(cfg.hidden)
        self.fc2 = nn.Linear(cfg.hidden, 1)

    def forward(self, codes, numbers):
        tables = (self.station, self.day, self.weather)
        x = torch.cat([t(codes[:, i]) for i, t in enumerate(tables)] + [numbers], dim=1)
        return self.fc2(torch.relu(self.norm(self.fc1(x)))).squeeze(1)


def configure_optimizer(model, cfg):
    decay, no_decay = [], []
    for module in model.modules():
        for name, p in module.named_parameters(recurse=False):
            if name == "bias" or isinstance(module, nn.LayerNorm):
                no_decay.append(p)
            elif isinstance(module, nn.Linear):
                decay.append(p)
    groups = [{"params": decay, "weight_decay": cfg.weight_decay}, {"params": no_decay, "weight_decay": 0.0}]
    return torch.optim.AdamW(groups, lr=cfg.lr)


def main(cfg):
    torch.manual_seed(cfg.seed)
    effects = [torch.randn(n) for n in (cfg.stations, cfg.days, cfg.weathers)]

    def sample(n):
        codes = torch.stack([torch.randint(0, len(e), (n,)) for e in effects], 1)
        numbers = torch.randn(n, 4)
        y = sum(e[codes[:, i]] for i, e in enumerate(effects)) + 0.5 * numbers[:, 0] - 0.3 * numbers[:, 1]
        return codes, numbers, y + 0.1 * torch.randn(n)

    model = RentalNet(cfg)
    optimizer = configure_optimizer(model, cfg)
    for step in range(cfg.steps):
        codes, numbers, y = sample(cfg.batch)
        loss = nn.functional.mse_loss(model(codes, numbers), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 40 == 0 or step == cfg.steps - 1:
            print(f"{step:4d} loss {loss.item():.4f}")
    torch.save(model.state_dict(), "rental.pt")


if __name__ == "__main__":
    main(Config())
