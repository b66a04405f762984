"""Double DQN in a small maze: a target network that is copied now and then, Huber loss, replay."""
import random

import torch
import torch.nn as nn
import torch.nn.functional as F

MAZE = ["....", ".##.", "...#", "#..G"]
MOVES = [(-1, 0), (1, 0), (0, -1), (0, 1)]
FREE = [(r, c) for r in range(4) for c in range(4) if MAZE[r][c] == "."]


def encode(cell):
    x = torch.zeros(16)
    x[cell[0] * 4 + cell[1]] = 1
    return x


def move(cell, action):
    r, c = cell[0] + MOVES[action][0], cell[1] + MOVES[action][1]
    if not (0 <= r < 4 and 0 <= c < 4) or MAZE[r][c] == "#":
        return cell, -0.1, False
    return (r, c), (1.0 if MAZE[r][c] == "G" else -0.04), MAZE[r][c] == "G"


class QNet(nn.Module):
    """Dueling heads."""

    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(16, 48), nn.ReLU())
        self.value = nn.Linear(48, 1)
        self.advantage = nn.Linear(48, 4)

    def forward(self, x):
        h = self.body(x)
        a = self.advantage(h)
        return self.value(h) + a - a.mean(1, keepdim=True)


class Agent:
    def __init__(self, gamma=0.95):
        self.online, self.target = QNet(), QNet()
        self.target.load_state_dict(self.online.state_dict())
        self.target.requires_grad_(False)
        self.optimizer = torch.optim.RMSprop(self.online.parameters(), lr=1e-3)
        self.buffer, self.gamma, self.updates = [], gamma, 0

    def act(self, cell, epsilon):
        if random.random() < epsilon:
            return random.randrange(4)
        with torch.no_grad():
            return int(self.online(encode(cell).unsqueeze(0)).argmax(1))

    def learn(self):
        s, a, r, s2, done = zip(*random.sample(self.buffer, 48))
        s, s2 = torch.stack([encode(c) for c in s]), torch.stack([encode(c) for c in s2])
        a, r, done = torch.tensor(a), torch.tensor(r), torch.tensor(done).float()
        q = self.online(s).gather(1, a.unsqueeze(1)).squeeze(1)
        with torch.no_grad():
            best = self.online(s2).argmax(1, keepdim=True)
            wanted = r + self.gamma * (1 - done) * self.target(s2).gather(1, best).squeeze(1)
        loss = F.smooth_l1_loss(q, wanted)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        self.updates += 1
        if self.updates % 50 == 0:
            self.target.load_state_dict(self.online.state_dict())


random.seed(5)
torch.manual_seed(5)
agent, lengths = Agent(), []
for episode in range(120):
    cell, done, steps = random.choice(FREE), False, 0
    while not done and steps < 30:
        action = agent.act(cell, max(0.05, 1 - episode / 60))
        following, reward, done = move(cell, action)
        agent.buffer.append((cell, action, reward, following, done))
        cell, steps = following, steps + 1
        if len(agent.buffer) > 100:
            agent.learn()
    lengths.append(steps)
    if (episode + 1) % 20 == 0:
        print(f"episode {episode + 1} mean length {sum(lengths[-20:]) / 20:.2f}")
torch.save(agent.online.state_dict(), "maze.pt")
