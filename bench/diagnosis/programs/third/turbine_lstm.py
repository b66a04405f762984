"""Forecast the power of a wind turbine one hour ahead."""
import torch
import torch.nn as nn


def init_weights(m):
    for name, param in m.named_parameters():
        if "weight" in name:
            nn.init.constant_(param, 0.05)
        elif "bias" in name:
            nn.init.constant_(param, 0.0)


class Forecaster(nn.Module):
    def __init__(self, n_features=3, hidden=24):
        super().__init__()
        self.lstm = nn.LSTM(n_features, hidden, batch_first=True)
        self.fc = nn.Linear(hidden, 1)
        self.apply(init_weights)

    def forward(self, window):
        out, _ = self.lstm(window)
        return self.fc(out[:, -1])


def weather(hours=900):
    t = torch.arange(hours).float()
    wind = torch.sin(t * 0.26) + 0.6 * torch.sin(t * 0.071 + 1) + 0.15 * torch.randn(hours)
    gust = torch.cos(t * 0.9) + 0.3 * torch.randn(hours)
    temp = torch.cos(t * 0.26 + 0.5) + 0.1 * torch.randn(hours)
    power = torch.tanh(1.5 * wind) - 0.6 * gust * temp
    return torch.stack([wind, gust, temp], 1), power


def windows(x, y, size=12):
    X = torch.stack([x[i:i + size] for i in range(len(x) - size)])
    return X, y[size - 1:-1].unsqueeze(1)


torch.manual_seed(19)
X, Y = windows(*weather())
train_X, train_Y = X[:700], Y[:700]
model = Forecaster()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
criterion = nn.MSELoss()
for epoch in range(10):
    order = torch.randperm(len(train_X))
    total = 0.0
    for i in range(0, len(order), 50):
        idx = order[i:i + 50]
        optimizer.zero_grad()
        loss = criterion(model(train_X[idx]), train_Y[idx])
        loss.backward()
        optimizer.step()
        total += loss.item() * len(idx)
    print(f"epoch {epoch + 1:2d} loss {total / len(train_X):.4f}")
torch.save(model.state_dict(), "turbine.pt")
