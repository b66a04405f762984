import argparse
import torch
from torch import nn, optim


def build(n_features, hidden, bias_init):
    first, second, last = nn.Linear(n_features, hidden), nn.Linear(hidden, hidden), nn.Linear(hidden, 2)
    nn.init.constant_(second.bias, bias_init)
    return nn.Sequential(first, nn.ReLU(), second, nn.ReLU(), last)


def customers(n, n_features):
    x = torch.rand(n, n_features)
    return x, ((x[:, 0] + x[:, 1] > 1) ^ (x[:, 2] > 0.7)).long()


def main(a):
    torch.manual_seed(a.seed)
    model = build(12, a.hidden, a.bias)
    optimizer = optim.Adam(model.parameters(), lr=a.lr)
    ce = nn.CrossEntropyLoss()
    window = []
    for step in range(a.steps):
        x, y = customers(128, 12)
        out = model(x)
        loss = ce(out, y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        window.append(loss.item())
        if (step + 1) % 20 == 0:
            print("step", step + 1, "loss %.4f" % (sum(window[-20:]) / 20))
    torch.save(model.state_dict(), "churn.pt")


parser = argparse.ArgumentParser()
parser.add_argument("--hidden", default=48, type=int)
parser.add_argument("--lr", default=0.005, type=float)
parser.add_argument("--bias", default=-6.0, type=float)
parser.add_argument("--steps", default=120, type=int)
parser.add_argument("--seed", default=1, type=int)
main(parser.parse_args())
