"""Two views of one thing should have one embedding; a probe reads what the embedding knows."""
import torch
import torch.nn as nn
import torch.nn.functional as F


class ViewEncoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.l1 = nn.Linear(24, 64)
        self.l2 = nn.Linear(64, 16)

    def forward(self, x):
        return self.l2(F.relu(self.l1(x)))


torch.manual_seed(18)
things = torch.randn(10, 24)


def views(n):
    y = torch.randint(0, 10, (n,))
    return things[y] + 0.4 * torch.randn(n, 24), things[y] + 0.4 * torch.randn(n, 24), y


def spread(enc):
    with torch.no_grad():
        a, _, y = views(400)
        z = enc(a)
        return z.std(0).mean().item()


enc = ViewEncoder()
opt = torch.optim.Adam(enc.parameters(), lr=5e-3)
for step in range(100):
    a, b, _ = views(64)
    za, zb = enc(a), enc(b)
    loss = F.mse_loss(za, zb)
    opt.zero_grad()
    loss.backward()
    opt.step()
    if step % 20 == 0 or step == 99:
        print(f"step {step} loss {loss.item():.6f} spread {spread(enc):.5f}")
torch.save(enc.state_dict(), "views.pt")
