import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(33)


class CosineHead(nn.Module):
    def __init__(self, dim, classes, s=12.0):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(classes, dim))
        self.s = s

    def forward(self, feats):
        w = F.normalize(self.weight.data, dim=1)
        return self.s * F.normalize(feats, dim=1) @ w.t()


class FaceCNN(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 8, 3, padding=1)
        self.conv2 = nn.Conv2d(8, 16, 3, padding=1)
        self.embed = nn.Linear(16 * 9, 12)
        self.head = CosineHead(12, 15)

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.conv1(x)), 2)
        x = F.max_pool2d(F.relu(self.conv2(x)), 2)
        return self.head(self.embed(x.flatten(1)))


people = torch.randn(15, 1, 12, 12)
model = FaceCNN()
opt = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
for step in range(70):
    who = torch.randint(0, 15, (40,))
    photos = people[who] + 0.9 * torch.randn(40, 1, 12, 12)
    loss = F.cross_entropy(model(photos), who)
    opt.zero_grad()
    loss.backward()
    opt.step()
    if step % 10 == 9:
        print("step %3d  loss %.4f" % (step + 1, loss.item()))
torch.save(model.state_dict(), "cosface.pt")
