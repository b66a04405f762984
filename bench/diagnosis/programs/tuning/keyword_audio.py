"""Keyword spotting on fake spectrograms."""
import torch
import torch.nn as nn
from torch.utils.data import DataLoader, Dataset


class Keywords(Dataset):
    def __init__(self, n, seed):
        g = torch.Generator().manual_seed(seed)
        base = torch.randn(6, 8, 16, generator=torch.Generator().manual_seed(99))
        self.y = torch.randint(0, 6, (n,), generator=g)
        self.x = base[self.y] + 1.5 * torch.randn(n, 8, 16, generator=g)

    def __len__(self):
        return len(self.y)

    def __getitem__(self, i):
        return self.x[i], self.y[i]


class Spotter(nn.Module):
    def __init__(self):
        super().__init__()
        self.gru = nn.GRU(8, 32, batch_first=True)
        self.fc = nn.Linear(32, 6)

    def forward(self, x):
        out, _ = self.gru(x.transpose(1, 2))
        return self.fc(out[:, -1])


def main():
    torch.manual_seed(14)
    train = DataLoader(Keywords(640, seed=0), batch_size=32, shuffle=False)
    test = DataLoader(Keywords(200, seed=1), batch_size=100)
    model = Spotter()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    loss_fn = nn.CrossEntropyLoss()
    for step in range(80):
        x, y = next(iter(train))
        optimizer.zero_grad()
        loss = loss_fn(model(x), y)
        loss.backward()
        optimizer.step()
        if step % 20 == 19:
            print(f"step {step + 1} train {loss.item():.4f}")
    with torch.no_grad():
        losses = [loss_fn(model(x), y).item() for x, y in test]
    print(f"test loss {sum(losses) / len(losses):.4f}")
    torch.save(model.state_dict(), "spotter.pt")


main()
