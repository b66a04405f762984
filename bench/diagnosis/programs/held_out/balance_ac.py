"""Actor and critic, an optimizer for each, losses of either sign."""
import torch
import torch.nn as nn
import torch.nn.functional as F


class ActorCritic(nn.Module):
    def __init__(self):
        super().__init__()
        self.actor = nn.Sequential(nn.Linear(8, 48), nn.Tanh(), nn.Linear(48, 4))
        self.critic = nn.Sequential(nn.Linear(8, 48), nn.Tanh(), nn.Linear(48, 1))

    def forward(self, s):
        return F.log_softmax(self.actor(s), -1), self.critic(s).squeeze(-1)


torch.manual_seed(57)
net = ActorCritic()
opt_a = torch.optim.Adam(net.actor.parameters(), lr=0.01)
opt_c = torch.optim.Adam(net.critic.parameters(), lr=0.01)
moves = torch.tensor([[0.3, 0.0], [-0.3, 0.0], [0.0, 0.3], [0.0, -0.3]])
for it in range(100):
    here, goal = torch.rand(64, 2), torch.rand(64, 2)
    way = goal - here
    s = torch.cat([here, goal, way, way.abs()], 1)
    logp, v = net(s)
    a = torch.multinomial(logp.exp(), 1).squeeze(1)
    reward = 5 * (way.norm(dim=1) - (way - moves[a]).norm(dim=1))
    entropy = -(logp.exp() * logp).sum(1).mean()
    loss_a = -(logp.gather(1, a[:, None]).squeeze(1) * (reward - v.detach())).mean() - 0.01 * entropy
    loss_c = F.mse_loss(v, reward)
    opt_a.zero_grad()
    opt_c.zero_grad()
    loss_a.backward()
    loss_c.backward()
    opt_a.step()
    opt_c.step()
    if it % 20 == 0 or it == 99:
        print(f"iteration {it} distance {2 - reward.mean():.4f}")
torch.save(net.state_dict(), "ac.pt")
