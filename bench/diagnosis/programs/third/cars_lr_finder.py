"""Learning rate range test, then training: rates from 1e-7 until the loss blows up, and everything is put back."""
import copy
import math

import torch
import torch.nn as nn
from torch.utils.data import DataLoader, TensorDataset


def cars(n=640):
    x = torch.randn(n, 6)
    price = 1.5 * x[:, 0] - x[:, 1] * x[:, 2] + torch.relu(x[:, 3]) + 0.1 * torch.randn(n)
    return TensorDataset(x, price.unsqueeze(1))


class LRFinder:
    def __init__(self, model, optimizer, criterion):
        self.model, self.optimizer, self.criterion = model, optimizer, criterion
        self.kept = copy.deepcopy(model.state_dict()), copy.deepcopy(optimizer.state_dict())
        self.history = []

    def range_test(self, loader, start=1e-7, end=10.0, steps=60):
        factor, best, smooth = (end / start) ** (1 / steps), math.inf, None
        for group in self.optimizer.param_groups:
            group["lr"] = start
        batches = iter(loader)
        for _ in range(steps):
            try:
                x, y = next(batches)
            except StopIteration:
                batches = iter(loader)
                x, y = next(batches)
            loss = self.criterion(self.model(x), y)
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
            smooth = loss.item() if smooth is None else 0.7 * smooth + 0.3 * loss.item()
            lr = self.optimizer.param_groups[0]["lr"]
            self.history.append((lr, smooth))
            best = min(best, smooth)
            if smooth > 4 * best:
                break
            self.optimizer.param_groups[0]["lr"] = lr * factor

    def suggestion(self):
        return min(self.history, key=lambda pair: pair[1])[0] / 10

    def reset(self):
        self.model.load_state_dict(self.kept[0])
        self.optimizer.load_state_dict(self.kept[1])


torch.manual_seed(15)
loader = DataLoader(cars(), batch_size=32, shuffle=True)
model = nn.Sequential(nn.Linear(6, 48), nn.ReLU(), nn.Linear(48, 48), nn.ReLU(), nn.Linear(48, 1))
criterion = nn.MSELoss()
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9)
finder = LRFinder(model, optimizer, criterion)
finder.range_test(loader)
lr = finder.suggestion()
finder.reset()
print(f"suggested {lr:.2e} after {len(finder.history)} rates")

for group in optimizer.param_groups:
    group["lr"] = lr
for epoch in range(8):
    total = 0.0
    for x, y in loader:
        optimizer.zero_grad()
        loss = criterion(model(x), y)
        loss.backward()
        optimizer.step()
        total += loss.item()
    print(f"epoch {epoch} loss {total / len(loader):.4f}")
torch.save(model.state_dict(), "cars.pt")
