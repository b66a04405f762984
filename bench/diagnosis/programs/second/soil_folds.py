"""Soil classes from spectra, three folds, a 1-D convolution net."""
import torch
import torch.nn as nn
from torch.utils.data import DataLoader, Subset, TensorDataset

torch.manual_seed(90)
K, EPOCHS = 3, 4


def make_model():
    return nn.Sequential(
        nn.Conv1d(1, 12, 5, padding=2), nn.BatchNorm1d(12), nn.ReLU(), nn.MaxPool1d(2),
        nn.Conv1d(12, 24, 5, padding=2), nn.BatchNorm1d(24), nn.ReLU(), nn.AdaptiveAvgPool1d(4),
        nn.Flatten(), nn.Linear(96, 5),
    )


def spectra(n=480, length=32):
    y = torch.arange(n) % 5
    proto = torch.randn(5, length).cumsum(1) * 0.3
    return TensorDataset((proto[y] + 0.7 * torch.randn(n, length)).unsqueeze(1), y)


def validate(model, loader, criterion):
    model.eval()
    with torch.no_grad():
        losses = [criterion(model(x), y).item() for x, y in loader]
    model.train()
    return sum(losses) / len(losses)


dataset = spectra()
order = torch.randperm(len(dataset)).tolist()
criterion = nn.CrossEntropyLoss()
model = make_model()
optimizer = torch.optim.Adam(model.parameters(), lr=4e-3)
for fold in range(K):
    if fold > 0:
        model = make_model()
    held = set(order[fold::K])
    train = DataLoader(Subset(dataset, [i for i in order if i not in held]), batch_size=32, shuffle=True)
    val = DataLoader(Subset(dataset, sorted(held)), batch_size=80)
    for epoch in range(EPOCHS):
        for x, y in train:
            optimizer.zero_grad()
            criterion(model(x), y).backward()
            optimizer.step()
    print(f"fold {fold} val loss {validate(model, val, criterion):.4f}")
    torch.save(model.state_dict(), f"fold{fold}.pt")
