"""Up or down tomorrow?"""
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(36)


class UpDown(nn.Module):
    def __init__(self, d=12, h=32):
        super().__init__()
        self.l1 = nn.Linear(d, h)
        self.l2 = nn.Linear(h, h)
        self.l3 = nn.Linear(h, 2)
        self.reset()

    def reset(self):
        for layer in (self.l1, self.l2, self.l3):
            nn.init.zeros_(layer.weight)
            nn.init.zeros_(layer.bias)

    def forward(self, x):
        return self.l3(F.relu(self.l2(F.relu(self.l1(x)))))


net = UpDown()
opt = torch.optim.Adam(net.parameters(), lr=0.01)
past = []
for day in range(100):
    x = torch.randn(64, 12)
    y = (x[:, 0] - x[:, 1] + 0.5 * x[:, 2] * x[:, 3] > 0).long()
    loss = F.cross_entropy(net(x), y)
    opt.zero_grad()
    loss.backward()
    opt.step()
    past.append(loss.item())
    if day % 20 == 19:
        print(f"day {day + 1} loss {sum(past[-20:]) / 20:.4f}")
torch.save(net.state_dict(), "updown.pt")
