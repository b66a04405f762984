"""The 80 % quantile of tomorrow's demand from an LSTM."""
import torch
from torch import nn


class DemandLSTM(nn.Module):
    def __init__(self, n_features=3, hidden=40):
        super().__init__()
        self.lstm = nn.LSTM(n_features, hidden, batch_first=True)
        self.head = nn.Linear(hidden, 1)

    def forward(self, x):
        out, _ = self.lstm(x)
        return self.head(out[:, -1])


def pinball(pred, target, q=0.8):
    err = target - pred
    return torch.max(q * err, (q - 1) * err).mean()


def histories(n, days=14):
    level = torch.randn(n, 1) * 1.5
    trend = torch.randn(n, 1) * 0.1
    t = torch.arange(days + 1)
    demand = level + trend * t + 0.5 * torch.sin(6.283 * t / 7) + 0.1 * torch.randn(n, days + 1)
    calendar = torch.stack([torch.sin(6.283 * t / 7), torch.cos(6.283 * t / 7)], -1).expand(n, -1, -1)
    return torch.cat([demand.unsqueeze(-1), calendar], -1)[:, :-1], demand[:, -1]


def evaluate(model, x, y):
    model.eval()
    with torch.no_grad():
        pred = model(x)[:, 0]
        below = (y < pred).float().mean()
        result = torch.max(0.8 * (y - pred), -0.2 * (y - pred)).mean()
    model.train()
    return result.item(), below.item()


torch.manual_seed(18)
model = DemandLSTM()
optimizer = torch.optim.RMSprop(model.parameters(), lr=3e-3)
test = histories(300)
for step in range(1, 121):
    x, y = histories(64)
    optimizer.zero_grad()
    loss = pinball(model(x), y)
    loss.backward()
    optimizer.step()
    if step % 30 == 0:
        score, below = evaluate(model, *test)
        print(f"step {step} train {loss.item():.4f} test pinball {score:.4f} below {below:.2f}")
torch.save(model.state_dict(), "demand.pt")
