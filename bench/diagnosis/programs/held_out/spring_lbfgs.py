"""Fit a curve with L-BFGS: the closure is called several times for each step."""
import torch
import torch.nn as nn

torch.manual_seed(10)
t = torch.linspace(0, 4, 80).unsqueeze(1)
y = torch.exp(-0.4 * t) * torch.cos(4 * t)
net = nn.Sequential(nn.Linear(1, 24), nn.Tanh(), nn.Linear(24, 24), nn.Tanh(), nn.Linear(24, 1))
opt = torch.optim.LBFGS(net.parameters(), lr=0.5, max_iter=6)


def closure():
    opt.zero_grad()
    loss = (net(t) - y).pow(2).mean()
    loss.backward()
    return loss


for step in range(40):
    loss = opt.step(closure)
    if step % 8 == 0 or step == 39:
        print("step", step, "loss", "%.5f" % loss.item())
torch.save(net.state_dict(), "spring.pt")
