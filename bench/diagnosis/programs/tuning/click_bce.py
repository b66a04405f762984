"""Click prediction with embeddings and a hand-written log loss."""
import torch
import torch.nn as nn


class ClickModel(nn.Module):
    def __init__(self, n_users=50, n_items=80, dim=8):
        super().__init__()
        self.user = nn.Embedding(n_users, dim)
        self.item = nn.Embedding(n_items, dim)
        self.mlp = nn.Sequential(nn.Linear(2 * dim + 1, 32), nn.ReLU(), nn.Linear(32, 1))

    def forward(self, u, i, price):
        h = torch.cat([self.user(u), self.item(i), price.unsqueeze(1)], dim=1)
        return torch.sigmoid(self.mlp(h)).squeeze(1)


def log_loss(p, y):
    return -(y * torch.log(p) + (1 - y) * torch.log(1 - p)).mean()


def impressions(n):
    u, i = torch.randint(0, 50, (n,)), torch.randint(0, 80, (n,))
    price = (1.15 * torch.randn(n)).exp() * 6
    liked = ((u * 7 + i * 3) % 10 < 5).float() * 2 - 1
    clicked = (liked * 4 + 8 - price > 0).float()
    return u, i, price, clicked


torch.manual_seed(3)
model = ClickModel()
optimizer = torch.optim.Adam(model.parameters(), lr=0.03)
for step in range(100):
    u, i, price, clicked = impressions(128)
    loss = log_loss(model(u, i, price), clicked)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 10 == 0 or step == 99:
        print(f"step {step} loss {loss.item():.4f}")
torch.save(model.state_dict(), "clicks.pt")
