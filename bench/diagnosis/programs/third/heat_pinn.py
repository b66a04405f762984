"""Heat equation by a physics-informed network: u_t = 0.1 u_xx, gradients of gradients, the same points at every step."""
import math

import torch
import torch.nn as nn

torch.manual_seed(27)


class PINN(nn.Module):
    def __init__(self, width=24, depth=3):
        super().__init__()
        sizes = [2] + [width] * depth + [1]
        self.layers = nn.ModuleList(nn.Linear(a, b) for a, b in zip(sizes[:-1], sizes[1:]))
        for layer in self.layers:
            nn.init.xavier_normal_(layer.weight)
            nn.init.zeros_(layer.bias)

    def forward(self, x, t):
        h = torch.stack([x, t], 1)
        for layer in self.layers[:-1]:
            h = torch.tanh(layer(h))
        return self.layers[-1](h).squeeze(1)


def gradient(y, x):
    return torch.autograd.grad(y, x, torch.ones_like(y), create_graph=True)[0]


def residual(model, x, t):
    u = model(x, t)
    u_t, u_x = gradient(u, t), gradient(u, x)
    return u_t - 0.1 * gradient(u_x, x)


# collocation points, initial condition sin(pi x), walls at zero
x_in = torch.rand(256, requires_grad=True)
t_in = torch.rand(256, requires_grad=True)
x_0 = torch.linspace(0, 1, 64)
wall = torch.cat([torch.zeros(32), torch.ones(32)])
t_wall = torch.rand(64)

model = PINN()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
for step in range(250):
    inside = residual(model, x_in, t_in).pow(2).mean()
    start = (model(x_0, torch.zeros(64)) - torch.sin(math.pi * x_0)).pow(2).mean()
    border = model(wall, t_wall).pow(2).mean()
    loss = inside + 10 * (start + border)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 50 == 0 or step == 249:
        print(f"{step} loss {loss.item():.5f}")
torch.save(model.state_dict(), "pinn.pt")
