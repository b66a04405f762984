"""Amount of rain: root of it where it rained, nothing where it did not."""
import torch
import torch.nn as nn
import torch.nn.functional as F


class RainNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(9, 48), nn.ReLU(), nn.Linear(48, 48), nn.ReLU())
        self.amount = nn.Linear(48, 1)

    def forward(self, x):
        a = self.amount(self.body(x)).squeeze(1)
        return torch.where(a > 0, torch.sqrt(a), torch.zeros_like(a))


def days(n, w):
    x = torch.rand(n, 9)
    return x, (2 * (x @ w) - 4.5).clamp(min=0).sqrt()


torch.manual_seed(30)
w = torch.rand(9)
net = RainNet()
nn.init.constant_(net.amount.bias, 1.0)
opt = torch.optim.SGD(net.parameters(), lr=0.06, momentum=0.9)
for step in range(90):
    x, y = days(64, w)
    loss = F.mse_loss(net(x), y)
    opt.zero_grad()
    loss.backward()
    opt.step()
    if step % 10 == 0 or step == 89:
        print(f"{step} loss {loss.item():.4f}")
torch.save(net.state_dict(), "rain.pt")
