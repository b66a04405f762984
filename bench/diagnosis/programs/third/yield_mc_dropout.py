"""Crop yield with uncertainty: in evaluation the dropout layers, and only they, stay in training mode."""
import torch
import torch.nn as nn
import torch.nn.functional as F


class YieldNet(nn.Module):
    def __init__(self, n_in=7, hidden=64, p=0.15):
        super().__init__()
        self.fc1 = nn.Linear(n_in, hidden)
        self.bn = nn.BatchNorm1d(hidden)
        self.drop1 = nn.Dropout(p)
        self.fc2 = nn.Linear(hidden, hidden)
        self.drop2 = nn.Dropout(p)
        self.mean = nn.Linear(hidden, 1)
        self.log_var = nn.Linear(hidden, 1)

    def forward(self, x):
        h = self.drop1(F.relu(self.bn(self.fc1(x))))
        h = self.drop2(F.relu(self.fc2(h)))
        return self.mean(h).squeeze(1), self.log_var(h).squeeze(1)


def enable_dropout(model):
    for m in model.modules():
        if isinstance(m, nn.Dropout):
            m.train()


@torch.no_grad()
def predict(model, x, samples=8):
    model.eval()
    enable_dropout(model)
    means = torch.stack([model(x)[0] for _ in range(samples)])
    model.train()
    return means.mean(0), means.std(0)


def fields(n):
    x = torch.randn(n, 7)
    y = x[:, 0] + torch.sin(2 * x[:, 1]) + 0.5 * x[:, 2] * x[:, 3]
    return x, y + (0.05 + 0.15 * (x[:, 4] > 0)) * torch.randn(n)


torch.manual_seed(55)
x, y = fields(800)
test_x, test_y = fields(200)
model = YieldNet()
optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
for epoch in range(12):
    for idx in torch.randperm(len(x)).split(50):
        mean, log_var = model(x[idx])
        # Gaussian likelihood: negative where the model is sure
        loss = (0.5 * ((mean - y[idx]) ** 2 / log_var.exp() + log_var)).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    mean, spread = predict(model, test_x)
    if epoch % 3 == 0 or epoch == 11:
        print(f"epoch {epoch} nll {loss.item():.3f} mse {F.mse_loss(mean, test_y).item():.4f} spread {spread.mean().item():.3f}")
torch.save(model.state_dict(), "yield.pt")
