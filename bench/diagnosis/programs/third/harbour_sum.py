"""Water level of a harbour from wind and pressure."""
import torch
import torch.nn as nn
from torch.utils.data import DataLoader, TensorDataset


def make_data(n=768):
    wind = torch.randn(n, 2)
    pressure = torch.randn(n, 3)
    level = torch.sin(wind[:, 0] * 1.5) + 0.5 * wind[:, 1] * pressure[:, 0] - 0.3 * pressure.sum(1)
    return torch.cat([wind, pressure], 1), (level + 0.05 * torch.randn(n)).unsqueeze(1)


class Net(nn.Module):
    def __init__(self, n_in, n_hidden=48, n_out=1):
        super().__init__()
        self.fc1 = nn.Linear(n_in, n_hidden)
        self.fc2 = nn.Linear(n_hidden, n_hidden)
        self.fc3 = nn.Linear(n_hidden, n_hidden)
        self.fc4 = nn.Linear(n_hidden, n_out)

    def forward(self, x):
        x = torch.relu(self.fc1(x))
        x = torch.relu(self.fc2(x))
        x = torch.relu(self.fc3(x))
        return self.fc4(x)


if __name__ == "__main__":
    torch.manual_seed(9)
    x, y = make_data()
    loader = DataLoader(TensorDataset(x, y), batch_size=64, shuffle=True)
    net = Net(5)
    criterion = nn.MSELoss(reduction="sum")
    optimizer = torch.optim.SGD(net.parameters(), lr=0.05)
    for epoch in range(25):
        for features, level in loader:
            prediction = net(features)
            loss = criterion(prediction, level)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        with torch.no_grad():
            rmse = (net(x) - y).pow(2).mean().sqrt()
        if epoch % 4 == 0:
            print(f"epoch {epoch}: rmse {rmse.item():.4f}")
    torch.save(net.state_dict(), "harbour.pt")
