"""SimSiam: predictor on one side, stop-gradient on the other."""
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(28)
things = torch.randn(10, 24)


class SimSiam(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(24, 64), nn.BatchNorm1d(64), nn.ReLU(), nn.Linear(64, 32), nn.BatchNorm1d(32))
        self.predictor = nn.Sequential(nn.Linear(32, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 32))

    def forward(self, a, b):
        za, zb = self.encoder(a), self.encoder(b)
        return self.predictor(za), self.predictor(zb), za.detach(), zb.detach()


def views(n):
    x = things[torch.randint(0, 10, (n,))]
    return x + 0.4 * torch.randn(n, 24), x + 0.4 * torch.randn(n, 24)


net = SimSiam()
opt = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
for step in range(80):
    pa, pb, za, zb = net(*views(64))
    similarity = F.cosine_similarity(pa, zb).mean() / 2 + F.cosine_similarity(pb, za).mean() / 2
    loss = -similarity
    opt.zero_grad()
    loss.backward()
    opt.step()
    if step % 16 == 0 or step == 79:
        print(f"step {step} distance {1 + loss.item():.4f}")
torch.save(net.state_dict(), "simsiam.pt")
