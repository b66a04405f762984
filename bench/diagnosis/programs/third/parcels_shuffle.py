"""Sort parcels by their barcode picture: numpy arrays, own batching."""
import numpy as np
import torch
import torch.nn as nn


def load_parcels(n=720, length=40, classes=6, seed=3):
    rng = np.random.default_rng(seed)
    codes = rng.integers(0, 2, (classes, length)).astype(np.float32)
    labels = np.arange(n) * classes // n
    scans = codes[labels] + 0.6 * rng.standard_normal((n, length)).astype(np.float32)
    return scans[:, None], labels


def shuffle(array, rng):
    return array[rng.permutation(len(array))]


def batches(x, y, size):
    for i in range(0, len(x), size):
        yield torch.from_numpy(x[i:i + size]), torch.from_numpy(y[i:i + size])


class BarcodeNet(nn.Module):
    def __init__(self, classes=6):
        super().__init__()
        self.conv1 = nn.Conv1d(1, 8, 5, padding=2)
        self.bn1 = nn.BatchNorm1d(8)
        self.conv2 = nn.Conv1d(8, 16, 5, padding=2, stride=2)
        self.bn2 = nn.BatchNorm1d(16)
        self.fc = nn.Linear(16 * 20, classes)

    def forward(self, x):
        x = torch.relu(self.bn1(self.conv1(x)))
        x = torch.relu(self.bn2(self.conv2(x)))
        return self.fc(x.flatten(1))


def main():
    torch.manual_seed(3)
    rng = np.random.default_rng(3)
    scans, labels = load_parcels()
    # the file is sorted by class
    scans, labels = shuffle(scans, rng), shuffle(labels, rng)
    model = BarcodeNet()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    criterion = nn.CrossEntropyLoss()
    for epoch in range(6):
        losses = []
        for x, y in batches(scans, labels, 40):
            loss = criterion(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        print(f"epoch {epoch} loss {np.mean(losses):.4f}")
    torch.save(model.state_dict(), "parcels.pt")


if __name__ == "__main__":
    main()
