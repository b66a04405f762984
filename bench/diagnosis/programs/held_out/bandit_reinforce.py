"""REINFORCE: choose the arm that fits the context."""
import torch
import torch.nn as nn
from torch.distributions import Categorical


class Policy(nn.Module):
    def __init__(self):
        super().__init__()
        self.affine1 = nn.Linear(6, 48)
        self.affine2 = nn.Linear(48, 5)

    def forward(self, s):
        return torch.softmax(self.affine2(torch.relu(self.affine1(s))), dim=1)


torch.manual_seed(543)
prefer = torch.randn(6, 5)
policy = Policy()
optimizer = torch.optim.Adam(policy.parameters(), lr=1e-2)
baseline = 0.0
for episode in range(120):
    s = torch.randn(64, 6)
    dist = Categorical(policy(s))
    a = dist.sample()
    reward = ((s @ prefer).argmax(1) == a).float()
    baseline = 0.9 * baseline + 0.1 * reward.mean().item()
    loss = -(dist.log_prob(a) * (reward - baseline)).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if episode % 20 == 0 or episode == 119:
        print(f"episode {episode} reward {reward.mean().item():.3f}")
torch.save(policy.state_dict(), "policy.pt")
