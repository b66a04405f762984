"""Actor and critic on a tiny balancing task."""
import torch
import torch.nn as nn
from torch.distributions import Categorical


class Actor(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(2, 32), nn.Tanh(), nn.Linear(32, 2))

    def forward(self, s):
        return Categorical(logits=self.net(s))


class Critic(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(2, 32), nn.Tanh(), nn.Linear(32, 1))

    def forward(self, s):
        return self.net(s).squeeze(-1)


def rollout(actor, n=32, length=6):
    s = torch.randn(n, 2) * 0.5
    states, logps, rewards = [], [], []
    for _ in range(length):
        dist = actor(s)
        a = dist.sample()
        states.append(s)
        logps.append(dist.log_prob(a))
        push = (a.float() * 2 - 1) * 0.3
        s = torch.stack([s[:, 0] + 0.5 * s[:, 1], s[:, 1] + push], 1).clamp(-3, 3)
        rewards.append(-s[:, 0].abs())
    returns, running = [], torch.zeros(n)
    for r in reversed(rewards):
        running = r + 0.8 * running
        returns.insert(0, running)
    return torch.cat(states), torch.cat(logps), torch.cat(returns)


torch.manual_seed(7)
actor, critic = Actor(), Critic()
opt_actor = torch.optim.Adam(actor.parameters(), lr=5e-3)
opt_critic = torch.optim.SGD(critic.parameters(), lr=0.05)
for episode in range(80):
    states, logps, returns = rollout(actor)
    values = critic(states)
    advantage = returns - values.detach()
    actor_loss = -(logps * advantage).mean()
    critic_loss = (values - returns).pow(2).mean()

    opt_actor.zero_grad()
    actor_loss.backward()
    opt_actor.step()

    critic_loss.backward()
    opt_critic.step()
    if episode % 16 == 0 or episode == 79:
        print(f"episode {episode} return {returns.mean():.3f} value error {critic_loss.item():.4f}")
torch.save({"actor": actor.state_dict(), "critic": critic.state_dict()}, "ac.pt")
