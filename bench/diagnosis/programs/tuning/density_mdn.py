"""Mixture density network: y given x has two branches."""
import torch
import torch.nn as nn
from torch.distributions import Categorical, MixtureSameFamily, Normal


class MDN(nn.Module):
    def __init__(self, hidden=40, k=3):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(1, hidden), nn.Tanh(), nn.Linear(hidden, hidden), nn.Tanh())
        self.pi = nn.Linear(hidden, k)
        self.mu = nn.Linear(hidden, k)
        self.log_sigma = nn.Linear(hidden, k)

    def forward(self, x):
        h = self.body(x)
        scale = nn.functional.softplus(self.log_sigma(h)) + 0.05
        return MixtureSameFamily(Categorical(logits=self.pi(h)), Normal(self.mu(h), scale))


def draw(n):
    x = torch.rand(n, 1) * 4 - 2
    side = (torch.rand(n) < 0.5).float() * 2 - 1
    return x, side * (x.squeeze(1).abs() + 0.3) + 0.1 * torch.randn(n)


torch.manual_seed(55)
model = MDN()
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
for step in range(100):
    x, y = draw(128)
    log_prob = model(x).log_prob(y)
    loss = log_prob.mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 20 == 0 or step == 99:
        print("step %d nll %.4f" % (step, -log_prob.mean().item()))
torch.save(model.state_dict(), "mdn.pt")
