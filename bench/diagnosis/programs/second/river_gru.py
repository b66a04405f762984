"""River levels: the next value from the last 20."""
from dataclasses import dataclass, field

import torch
import torch.nn as nn


@dataclass
class TrainConfig:
    steps: int = 100
    batch_size: int = 48
    window: int = 20
    hidden: int = 32
    learning_rate: float = 5e-3
    grad_clip: float = 0.0
    seed: int = 123
    log_every: int = 20
    sizes: list = field(default_factory=lambda: [32, 16])


class LevelModel(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.rnn = nn.GRU(1, cfg.hidden, batch_first=True)
        widths = [cfg.hidden, *cfg.sizes]
        self.mlp = nn.Sequential()
        for a, b in zip(widths, widths[1:]):
            self.mlp.append(nn.Linear(a, b))
            self.mlp.append(nn.Tanh())
        self.mlp.append(nn.Linear(widths[-1], 1))

    def forward(self, x):
        _, h = self.rnn(x)
        return self.mlp(h[0])


class Runner:
    def __init__(self, cfg):
        self.cfg = cfg
        torch.manual_seed(cfg.seed)
        self.model = LevelModel(cfg)
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=cfg.learning_rate)

    def sample(self):
        t = torch.arange(self.cfg.window + 1) + torch.rand(self.cfg.batch_size, 1) * 200
        level = torch.sin(t / 5) + 0.5 * torch.sin(t / 2) + 0.05 * torch.randn_like(t)
        return level[:, :-1].unsqueeze(-1), level[:, -1:]

    def fit(self):
        for step in range(self.cfg.steps):
            x, y = self.sample()
            loss = nn.functional.mse_loss(self.model(x), y)
            self.optimizer.zero_grad(set_to_none=True)
            loss.backward()
            torch.nn.utils.clip_grad_norm_(self.model.parameters(), self.cfg.grad_clip)
            self.optimizer.step()
            if step % self.cfg.log_every == 0 or step == self.cfg.steps - 1:
                print(f"step={step} loss={loss.item():.5f}")


runner = Runner(TrainConfig())
runner.fit()
torch.save(runner.model.state_dict(), "river.pt")
