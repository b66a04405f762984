"""Electric load of the next hour from the last day."""
import torch
import torch.nn as nn
from torch.utils.data import DataLoader, TensorDataset


class LoadGRU(nn.Module):
    def __init__(self):
        super().__init__()
        self.gru = nn.GRU(1, 24, batch_first=True)
        self.out = nn.Linear(24, 1)

    def forward(self, x):
        _, h = self.gru(x)
        return self.out(h[-1]).flatten()


def dataset(hours=900):
    t = torch.arange(hours).float()
    load = torch.sin(t / 24 * 6.2832) + 0.4 * torch.sin(t / 168 * 6.2832) + 0.1 * torch.randn(hours)
    x = load.unfold(0, 24, 1)[:-1].unsqueeze(-1)
    return TensorDataset(x, load[24:].unsqueeze(-1))


def fit(model, loader, epochs):
    criterion = nn.SmoothL1Loss()
    opt = torch.optim.Adam(model.parameters(), lr=0.01)
    for epoch in range(epochs):
        errors = []
        for x, y in loader:
            opt.zero_grad()
            prediction = model(x)
            loss = criterion(prediction, y)
            loss.backward()
            opt.step()
            errors.append((prediction.detach() - y.squeeze(-1)).abs().mean().item())
        print(f"epoch {epoch} mae {sum(errors) / len(errors):.4f}")


torch.manual_seed(38)
net = LoadGRU()
fit(net, DataLoader(dataset(), batch_size=64, shuffle=True), epochs=5)
torch.save(net.state_dict(), "load.pt")
