"""DQN on a corridor, with a target network that is copied now and then."""
import copy

import torch
import torch.nn as nn
import torch.nn.functional as F

N = 8


class QNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc1 = nn.Linear(N, 32)
        self.fc2 = nn.Linear(32, 2)

    def forward(self, s):
        return self.fc2(F.relu(self.fc1(s)))


def transitions(n):
    s = torch.randint(0, N, (n,))
    a = torch.randint(0, 2, (n,))
    s2 = (s + a * 2 - 1).clamp(0, N - 1)
    return F.one_hot(s, N).float(), a, (s2 == N - 1).float(), F.one_hot(s2, N).float()


def exact():
    q = torch.zeros(N, 2)
    for _ in range(60):
        v = q.max(1).values
        for s in range(N):
            for a in range(2):
                s2 = min(max(s + a * 2 - 1, 0), N - 1)
                q[s, a] = float(s2 == N - 1) + 0.8 * v[s2]
    return q


torch.manual_seed(35)
q_net = QNet()
target_net = copy.deepcopy(q_net)
optimizer = torch.optim.Adam(q_net.parameters(), lr=0.01)
truth = exact()
for step in range(120):
    s, a, r, s2 = transitions(64)
    with torch.no_grad():
        goal = r + 0.8 * target_net(s2).max(1).values
    loss = F.smooth_l1_loss(q_net(s).gather(1, a[:, None]).squeeze(1), goal)
    optimizer.zero_grad()
    loss.backward()
    torch.nn.utils.clip_grad_value_(q_net.parameters(), 1.0)
    optimizer.step()
    if step % 8 == 7:
        target_net.load_state_dict(q_net.state_dict())
    if step % 30 == 0 or step == 119:
        with torch.no_grad():
            print(f"step {step} error {(q_net(torch.eye(N)) - truth).abs().mean():.4f}")
torch.save(q_net.state_dict(), "dqn.pt")
