"""Policy and value on a shared body, each with its optimizer."""
import torch
import torch.nn as nn
import torch.nn.functional as F


class PolicyValue(nn.Module):
    def __init__(self):
        super().__init__()
        self.shared = nn.Sequential(nn.Linear(8, 48), nn.Tanh())
        self.policy = nn.Linear(48, 4)
        self.value = nn.Linear(48, 1)

    def forward(self, s):
        h = self.shared(s)
        return F.log_softmax(self.policy(h), -1), self.value(h).squeeze(-1)


def play(net, n=64):
    here, goal = torch.rand(n, 2), torch.rand(n, 2)
    s = torch.cat([here, goal, goal - here, (goal - here).abs()], 1)
    logp, v = net(s)
    a = torch.multinomial(logp.exp(), 1).squeeze(1)
    move = torch.tensor([[0.3, 0.0], [-0.3, 0.0], [0.0, 0.3], [0.0, -0.3]])[a]
    gain = (goal - here).norm(dim=1) - (goal - here - move).norm(dim=1)
    return logp.gather(1, a[:, None]).squeeze(1), v, gain * 5


torch.manual_seed(56)
net = PolicyValue()
policy_opt = torch.optim.Adam(list(net.shared.parameters()) + list(net.policy.parameters()), lr=0.01)
value_opt = torch.optim.Adam(list(net.shared.parameters()) + list(net.value.parameters()), lr=0.01)
for it in range(100):
    logp, v, reward = play(net)
    loss = -(logp * (reward - v.detach())).mean() + F.mse_loss(v, reward)
    policy_opt.zero_grad()
    value_opt.zero_grad()
    loss.backward()
    policy_opt.step()
    value_opt.step()
    if it % 20 == 0 or it == 99:
        print(f"iteration {it} reward {reward.mean():.4f}")
torch.save(net.state_dict(), "grid.pt")
