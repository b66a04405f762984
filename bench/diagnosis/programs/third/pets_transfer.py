"""Transfer learning: train on the source patterns, swap the classifier, fine-tune on the target patterns."""
import argparse
import math

import torch
import torch.nn as nn
from torch.utils.data import DataLoader, TensorDataset


class SmallCNN(nn.Module):
    def __init__(self, num_classes):
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(1, 12, 3, padding=1), nn.BatchNorm2d(12), nn.ReLU(), nn.MaxPool2d(2),
            nn.Conv2d(12, 24, 3, padding=1), nn.BatchNorm2d(24), nn.ReLU(), nn.MaxPool2d(2),
            nn.Conv2d(24, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(), nn.AdaptiveAvgPool2d(1),
        )
        self.fc = nn.Linear(32, num_classes)

    def forward(self, x):
        return self.fc(torch.flatten(self.features(x), 1))


def gratings(n, angles, seed):
    """Stripes of random phase; the label is the angle."""
    g = torch.Generator().manual_seed(seed)
    y = torch.randint(len(angles), (n,), generator=g)
    angle = torch.tensor(angles)[y] * math.pi / 180
    axis = torch.arange(16.0)
    yy, xx = torch.meshgrid(axis, axis, indexing="ij")
    phase = 6.28 * torch.rand(n, 1, 1, generator=g)
    wave = xx * angle.cos().view(-1, 1, 1) + yy * angle.sin().view(-1, 1, 1)
    x = torch.sin(wave * 1.2 + phase) + 0.5 * torch.randn(n, 16, 16, generator=g)
    return TensorDataset(x.unsqueeze(1), y)


def train(model, loader, optimizer, criterion, epochs, name):
    for epoch in range(epochs):
        model.train()
        running, correct, seen = 0.0, 0, 0
        for inputs, labels in loader:
            optimizer.zero_grad()
            outputs = model(inputs)
            loss = criterion(outputs, labels)
            loss.backward()
            optimizer.step()
            running += loss.item() * len(inputs)
            correct += (outputs.argmax(1) == labels).sum().item()
            seen += len(inputs)
        print(f"[{name}] epoch {epoch + 1} loss {running / seen:.4f} acc {correct / seen:.3f}")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--lr", type=float, default=0.05)
    parser.add_argument("--ft-lr", type=float, default=0.01)
    parser.add_argument("--batch-size", type=int, default=32)
    args = parser.parse_args()

    torch.manual_seed(11)
    source = DataLoader(gratings(384, [0.0, 45.0, 90.0, 135.0], 1), batch_size=args.batch_size, shuffle=True)
    target = DataLoader(gratings(320, [10.0, 40.0, 70.0, 100.0, 130.0, 160.0], 2), args.batch_size, shuffle=True)

    model = SmallCNN(num_classes=4)
    criterion = nn.CrossEntropyLoss()
    optimizer = torch.optim.SGD(model.parameters(), lr=args.lr, momentum=0.9)
    train(model, source, optimizer, criterion, 4, "source")

    # new classes, smaller steps
    model.fc = nn.Linear(model.fc.in_features, 6)
    for group in optimizer.param_groups:
        group["lr"] = args.ft_lr
    train(model, target, optimizer, criterion, 6, "target")
    torch.save(model.state_dict(), "finetuned.pt")


if __name__ == "__main__":
    main()
