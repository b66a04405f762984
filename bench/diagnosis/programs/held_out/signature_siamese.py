"""Same writer or not: a Siamese net with contrastive loss."""
import torch
import torch.nn as nn


class Siamese(nn.Module):
    def __init__(self):
        super().__init__()
        self.branch = nn.Sequential(nn.Linear(30, 64), nn.ReLU(), nn.Linear(64, 16))

    def forward(self, a, b):
        return self.branch(a), self.branch(b)


def contrastive(u, v, same, margin=1.5):
    d = torch.sqrt(((u - v) ** 2).sum(dim=1))
    return (same * d**2 + (1 - same) * torch.relu(margin - d) ** 2).mean()


def pairs(n, writers):
    i = torch.randint(0, len(writers), (n,))
    j = torch.where(torch.rand(n) < 0.5, i, torch.randint(0, len(writers), (n,)))
    a = writers[i] + 0.3 * torch.randn(n, 30)
    b = writers[j] + 0.3 * torch.randn(n, 30)
    return a, b, (i == j).float()


torch.manual_seed(3)
writers = torch.randn(12, 30) * 0.7
net = Siamese()
opt = torch.optim.Adam(net.parameters(), lr=2e-3)
for step in range(80):
    a, b, same = pairs(64, writers)
    if step % 40 == 33:
        b[5] = a[5]
        same[5] = 1.0
    u, v = net(a, b)
    loss = contrastive(u, v, same)
    opt.zero_grad()
    loss.backward()
    opt.step()
    if step % 16 == 0 or step == 79:
        print(f"step {step} loss {loss.item():.4f}")
torch.save(net.state_dict(), "siamese.pt")
