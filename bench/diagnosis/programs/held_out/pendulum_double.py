"""Learn the acceleration of a pendulum in double precision."""
import copy

import torch
import torch.nn as nn


def build_model():
    return nn.Sequential(nn.Linear(2, 48), nn.Softplus(), nn.Linear(48, 48), nn.Softplus(), nn.Linear(48, 1))


def states(n):
    s = (torch.rand(n, 2, dtype=torch.float64) * 2 - 1) * torch.tensor([3.0, 2.0])
    return s, (-9.81 * torch.sin(s[:, :1]) - 0.3 * s[:, 1:]) / 5


def to_double(module):
    module = copy.deepcopy(module)
    return module.double()


torch.manual_seed(2)
model = build_model()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
model = to_double(model)
for step in range(100):
    s, a = states(128)
    loss = (model(s) - a).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 25 == 0 or step == 99:
        print("step", step, "loss", "%.5f" % loss.item())
torch.save(model.state_dict(), "pendulum.pt")
