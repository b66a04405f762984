"""DQN: an elevator learns to go to the floor that called."""
import random
from collections import deque, namedtuple

import torch
import torch.nn as nn

Transition = namedtuple("Transition", ("state", "action", "reward", "next_state", "done"))
FLOORS = 6


class Elevator:
    def reset(self):
        self.at, self.call, self.t = random.randrange(FLOORS), random.randrange(FLOORS), 0
        return self.state()

    def state(self):
        s = torch.zeros(2 * FLOORS)
        s[self.at] = s[FLOORS + self.call] = 1.0
        return s

    def step(self, action):
        """0 down, 1 up, 2 open the door."""
        self.t += 1
        if action == 2:
            return self.state(), 1.0 if self.at == self.call else 0.0, True
        self.at = min(FLOORS - 1, max(0, self.at + (1 if action == 1 else -1)))
        return self.state(), 0.0, self.t >= 12


class ReplayMemory:
    def __init__(self, capacity):
        self.memory = deque([], maxlen=capacity)

    def push(self, *args):
        self.memory.append(Transition(*args))

    def sample(self, batch_size):
        return random.sample(self.memory, batch_size)

    def __len__(self):
        return len(self.memory)


class DQN(nn.Module):
    def __init__(self, n_observations, n_actions):
        super().__init__()
        self.layer1 = nn.Linear(n_observations, 64)
        self.layer2 = nn.Linear(64, 64)
        self.layer3 = nn.Linear(64, n_actions)

    def forward(self, x):
        x = torch.relu(self.layer1(x))
        x = torch.relu(self.layer2(x))
        return self.layer3(x)


BATCH_SIZE, GAMMA, TAU = 64, 0.9, 0.02
random.seed(0)
torch.manual_seed(0)
env = Elevator()
policy_net, target_net = DQN(2 * FLOORS, 3), DQN(2 * FLOORS, 3)
target_net.load_state_dict(policy_net.state_dict())
optimizer = torch.optim.AdamW(policy_net.parameters(), lr=2e-3)
memory = ReplayMemory(4000)


def optimize_model():
    if len(memory) < BATCH_SIZE:
        return
    batch = Transition(*zip(*memory.sample(BATCH_SIZE)))
    state_batch = torch.stack(batch.state)
    action_batch = torch.tensor(batch.action).unsqueeze(1)
    reward_batch = torch.tensor(batch.reward)
    done_batch = torch.tensor(batch.done).float()

    state_action_values = policy_net(state_batch).gather(1, action_batch)
    with torch.no_grad():
        next_state_values = target_net(torch.stack(batch.next_state)).max(1).values
    expected = reward_batch + GAMMA * next_state_values * (1 - done_batch)

    loss = (state_action_values - expected).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    torch.nn.utils.clip_grad_value_(policy_net.parameters(), 100)
    optimizer.step()


returns = []
for episode in range(360):
    state, total, done = env.reset(), 0.0, False
    epsilon = max(0.05, 1 - episode / 160)
    while not done:
        if random.random() < epsilon:
            action = random.randrange(3)
        else:
            with torch.no_grad():
                action = int(policy_net(state.unsqueeze(0)).argmax())
        next_state, reward, done = env.step(action)
        memory.push(state, action, reward, next_state, done)
        state, total = next_state, total + reward
        optimize_model()
        target = target_net.state_dict()
        for key, value in policy_net.state_dict().items():
            target[key] = value * TAU + target[key] * (1 - TAU)
        target_net.load_state_dict(target)
    returns.append(total)
    if (episode + 1) % 60 == 0:
        print(f"episode {episode + 1} epsilon {epsilon:.2f} reward {sum(returns[-60:]) / 60:.3f}")
torch.save(policy_net.state_dict(), "dqn.pt")
