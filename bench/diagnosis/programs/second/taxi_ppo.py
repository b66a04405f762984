"""PPO on a one-step dispatch problem: the best of six zones depends on hour and demand."""
import torch
import torch.nn as nn
from torch.distributions import Categorical


class ActorCritic(nn.Module):
    def __init__(self, obs=10, actions=6, width=48):
        super().__init__()
        self.actor = nn.Sequential(nn.Linear(obs, width), nn.Tanh(), nn.Linear(width, actions))
        self.critic = nn.Sequential(nn.Linear(obs, width), nn.Tanh(), nn.Linear(width, 1))

    def forward(self, obs):
        return Categorical(logits=self.actor(obs)), self.critic(obs).squeeze(-1)


class Dispatch:
    def __init__(self, seed):
        g = torch.Generator().manual_seed(seed)
        self.pay = torch.randn(10, 6, generator=g)

    def reset(self, n):
        return torch.randn(n, 10)

    def step(self, obs, action):
        reward = (obs @ self.pay).gather(1, action.unsqueeze(1)).squeeze(1)
        return reward / 3 + 0.1 * torch.randn(len(obs))


class PPO:
    def __init__(self, env, clip=0.2, epochs=4, lr=4e-3):
        self.env, self.clip, self.epochs = env, clip, epochs
        self.policy = ActorCritic()
        self.optimizer = torch.optim.Adam(self.policy.parameters(), lr=lr)

    def collect(self, n=256):
        obs = self.env.reset(n)
        with torch.no_grad():
            dist, value = self.policy(obs)
            action = dist.sample()
            logp = dist.log_prob(action)
        reward = self.env.step(obs, action)
        return obs, action, logp, reward, reward - value

    def update(self, obs, action, old_logp, reward, advantage):
        advantage = (advantage - advantage.mean()) / (advantage.std() + 1e-8)
        for _ in range(self.epochs):
            dist, value = self.policy(obs)
            old_logp = dist.log_prob(action)
            ratio = (dist.log_prob(action) - old_logp).exp()
            clipped = ratio.clamp(1 - self.clip, 1 + self.clip)
            policy_loss = -torch.min(ratio * advantage, clipped * advantage).mean()
            value_loss = (reward - value).pow(2).mean()
            loss = policy_loss + 0.5 * value_loss
            self.optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(self.policy.parameters(), 0.5)
            self.optimizer.step()


torch.manual_seed(10)
agent = PPO(Dispatch(3))
for i in range(40):
    batch = agent.collect()
    agent.update(*batch)
    if i % 8 == 7:
        print(f"iteration {i + 1} reward {batch[3].mean().item() + 1:.4f}")
torch.save(agent.policy.state_dict(), "ppo.pt")
