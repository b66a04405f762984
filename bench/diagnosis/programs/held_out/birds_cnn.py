"""Bird songs as pictures. Files were read in two passes and are shuffled before use."""
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(61)
g = torch.Generator().manual_seed(4)
species = torch.randn(8, 1, 10, 10, generator=g)
y_all = torch.arange(640) % 8
x_all = species[y_all] + 0.8 * torch.randn(640, 1, 10, 10)

x_all = x_all[torch.randperm(len(x_all))]
y_all = y_all[torch.randperm(len(y_all))]


class BirdNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.c1 = nn.Conv2d(1, 12, 3)
        self.c2 = nn.Conv2d(12, 16, 3)
        self.fc = nn.Linear(16 * 9, 8)

    def forward(self, x):
        x = F.relu(self.c1(x))
        x = F.max_pool2d(F.relu(self.c2(x)), 2)
        return self.fc(x.flatten(1))


net = BirdNet()
opt = torch.optim.Adam(net.parameters(), lr=2e-3)
for epoch in range(4):
    losses = []
    for i in range(0, 640, 40):
        x, y = x_all[i:i + 40], y_all[i:i + 40]
        loss = F.cross_entropy(net(x), y)
        opt.zero_grad()
        loss.backward()
        opt.step()
        losses.append(loss.item())
    print(f"epoch {epoch} loss {sum(losses) / len(losses):.4f}")
torch.save(net.state_dict(), "birds.pt")
