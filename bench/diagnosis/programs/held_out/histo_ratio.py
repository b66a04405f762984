"""Classify histograms of counts; each is turned into shares first."""
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(90)
RATES = torch.rand(5, 24) * 0.75


def counts(n):
    y = torch.randint(0, 5, (n,))
    return torch.poisson(RATES[y]), y


class ShareNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(24, 64)
        self.second = nn.Linear(64, 64)
        self.last = nn.Linear(64, 5)

    def forward(self, c):
        share = c / c.sum(dim=1, keepdim=True)
        h = F.elu(self.first(share * 10))
        return self.last(F.elu(self.second(h)))


net = ShareNet()
opt = torch.optim.Adam(net.parameters(), lr=3e-3)
for step in range(110):
    c, y = counts(40)
    loss = F.cross_entropy(net(c), y)
    opt.zero_grad()
    loss.backward()
    opt.step()
    if step % 10 == 9:
        print("step %d loss %.4f" % (step + 1, loss.item()))
torch.save(net.state_dict(), "shares.pt")
