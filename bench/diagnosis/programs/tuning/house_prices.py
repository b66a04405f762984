import argparse

import torch
from torch import nn


def get_data(n, d):
    x = torch.randn(n, d)
    w = torch.linspace(-1, 1, d)
    price = x @ w + 0.5 * torch.sin(3 * x[:, 0]) + 0.05 * torch.randn(n)
    return x, price


def train(args):
    torch.manual_seed(args.seed)
    x, y = get_data(1000, 8)
    model = nn.Sequential(
        nn.Linear(8, args.hidden), nn.ReLU(),
        nn.Linear(args.hidden, args.hidden), nn.ReLU(),
        nn.Linear(args.hidden, 1),
    )
    loss_fn = nn.MSELoss()
    opt = torch.optim.Adam(model.parameters(), lr=args.lr)
    for epoch in range(args.epochs):
        order = torch.randperm(len(x))
        running = 0.0
        for i in range(0, len(x), args.batch_size):
            sel = order[i:i + args.batch_size]
            pred = model(x[sel])
            loss = loss_fn(pred, y[sel])
            opt.zero_grad()
            loss.backward()
            opt.step()
            running += loss.item() * len(sel)
        print("epoch {} loss {:.4f}".format(epoch, running / len(x)))
    with torch.no_grad():
        error = (model(x).squeeze(1) - y).pow(2).mean()
    print("mse {:.4f}".format(error.item()))
    torch.save(model.state_dict(), args.out)


if __name__ == "__main__":
    p = argparse.ArgumentParser()
    p.add_argument("--epochs", type=int, default=8)
    p.add_argument("--batch-size", type=int, default=100)
    p.add_argument("--hidden", type=int, default=32)
    p.add_argument("--lr", type=float, default=5e-3)
    p.add_argument("--seed", type=int, default=0)
    p.add_argument("--out", default="prices.pt")
    train(p.parse_args())
