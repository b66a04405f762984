"""Load of a server from its last readings and the time of the request."""
import argparse

import torch
import torch.nn as nn

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--epochs", type=int, default=5)
parser.add_argument("--lr", type=float, default=2e-3)
parser.add_argument("--width", type=int, default=64)
args = parser.parse_args()

torch.manual_seed(200)
START = 1_699_920_000


def load_table(n):
    seconds = torch.rand(n) * 86_400
    readings = torch.randn(n, 5)
    hour = seconds / 86_400 * 6.2832
    y = torch.sin(hour) + readings[:, 0] * 0.8 - readings[:, 1] * readings[:, 2] * 0.5
    x = torch.cat([readings, (START + seconds).unsqueeze(1)], 1)
    return x, y.unsqueeze(1)


train_x, train_y = load_table(2560)
test_x, test_y = load_table(500)

model = nn.Sequential(
    nn.Linear(6, args.width), nn.ReLU(),
    nn.Linear(args.width, args.width), nn.ReLU(),
    nn.Linear(args.width, 1),
)
criterion = nn.MSELoss()
optimizer = torch.optim.Adam(model.parameters(), lr=args.lr)

for epoch in range(args.epochs):
    order = torch.randperm(len(train_x))
    for at in range(0, len(order), 64):
        pick = order[at : at + 64]
        optimizer.zero_grad()
        loss = criterion(model(train_x[pick]), train_y[pick])
        loss.backward()
        optimizer.step()
    with torch.no_grad():
        test = criterion(model(test_x), test_y)
    print(f"epoch {epoch + 1} train {loss.item():.4g} test loss {test.item():.6f}")
torch.save(model.state_dict(), "load.pt")
