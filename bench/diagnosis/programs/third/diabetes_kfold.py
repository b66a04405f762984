"""Five folds on a small table; each has its own model, optimizer and scheduler; predictions are averaged."""
import copy

import numpy as np
import torch
import torch.nn as nn

SEED, FOLDS, EPOCHS = 42, 5, 16


def set_seed(seed):
    np.random.seed(seed)
    torch.manual_seed(seed)


def load(n=300):
    rng = np.random.default_rng(SEED)
    x = rng.standard_normal((n, 8)).astype(np.float32)
    x[:, 5] = (x[:, 5] > 1.0)
    x[:, 7] = 0.0
    y = x[:, 0] * 1.2 + np.abs(x[:, 1]) + 0.8 * x[:, 5] + 0.3 * rng.standard_normal(n)
    return x, y.astype(np.float32)


class TabularNet(nn.Module):
    def __init__(self, n_features):
        super().__init__()
        self.net = nn.Sequential(
            nn.BatchNorm1d(n_features),
            nn.Linear(n_features, 48), nn.PReLU(), nn.Dropout(0.2),
            nn.Linear(48, 24), nn.PReLU(), nn.Dropout(0.2),
            nn.Linear(24, 1),
        )

    def forward(self, x):
        return self.net(x).squeeze(1)


def run_fold(fold, x, y, valid):
    train_x, train_y = torch.from_numpy(x[~valid]), torch.from_numpy(y[~valid])
    valid_x, valid_y = torch.from_numpy(x[valid]), torch.from_numpy(y[valid])
    model = TabularNet(x.shape[1])
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3, weight_decay=1e-5)
    scheduler = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, factor=0.1, patience=1, eps=1e-8)
    best, best_state = np.inf, None
    for epoch in range(EPOCHS):
        model.train()
        for idx in torch.randperm(len(train_x)).split(32):
            if len(idx) < 2:
                continue
            optimizer.zero_grad()
            loss = nn.functional.mse_loss(model(train_x[idx]), train_y[idx])
            loss.backward()
            optimizer.step()
        model.eval()
        with torch.no_grad():
            valid_loss = nn.functional.mse_loss(model(valid_x), valid_y).item()
        scheduler.step(valid_loss)
        if valid_loss < best:
            best, best_state = valid_loss, copy.deepcopy(model.state_dict())
        if epoch in (0, EPOCHS - 1):
            print(f"FOLD: {fold}, EPOCH: {epoch}, mse: {valid_loss:.4f}, best: {best:.4f}")
    model.load_state_dict(best_state)
    torch.save(best_state, f"fold{fold}.pt")
    with torch.no_grad():
        return model.eval()(valid_x).numpy()


if __name__ == "__main__":
    x, y = load()
    oof = np.zeros_like(y)
    which = np.random.default_rng(0).permutation(len(x)) % FOLDS
    for fold in range(FOLDS):
        set_seed(SEED + fold)
        oof[which == fold] = run_fold(fold, x, y, which == fold)
    print(f"out of fold mse: {np.mean((oof - y) ** 2):.4f}")
