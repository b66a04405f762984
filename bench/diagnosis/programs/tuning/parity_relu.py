"""Is the number of positive inputs even? Three inputs are enough to be interesting."""
import torch
import torch.nn as nn


def init_weights(m):
    if isinstance(m, nn.Linear):
        nn.init.constant_(m.weight, 0.05)
        nn.init.zeros_(m.bias)


def make_batch(n):
    x = torch.rand(n, 3) * 2 - 1
    return x, ((x > 0).sum(1) % 2).long()


torch.manual_seed(9)
layers = nn.Sequential(
    nn.Linear(3, 40),
    nn.Tanh(),
    nn.Linear(40, 40),
    nn.Tanh(),
    nn.Linear(40, 2),
)
layers.apply(init_weights)
opt = torch.optim.Adam(layers.parameters(), lr=0.01)
ce = nn.CrossEntropyLoss()

for epoch in range(6):
    total = 0.0
    for _ in range(20):
        x, y = make_batch(128)
        loss = ce(layers(x), y)
        opt.zero_grad()
        loss.backward()
        opt.step()
        total += loss.item()
    print("epoch", epoch, "loss", f"{total / 20:.4f}")
torch.save(layers.state_dict(), "parity.pt")
