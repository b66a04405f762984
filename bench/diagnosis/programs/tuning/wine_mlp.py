import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(21)

centers = torch.randn(4, 13) * 1.2
def sample(n):
    c = torch.randint(0, 4, (n,))
    return centers[c] + torch.randn(n, 13), c

class WineNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc1 = nn.Linear(13, 32)
        self.fc2 = nn.Linear(32, 32)
        self.fc3 = nn.Linear(32, 4)

    def forward(self, x):
        x = F.relu(self.fc1(x))
        x = F.relu(self.fc2(x))
        return self.fc3(x)

model = WineNet()
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
xval, yval = sample(500)
for step in range(100):
    x, y = sample(64)
    output = model(x)
    loss = F.cross_entropy(output, y)
    loss.backward()
    optimizer.step()
    if step % 10 == 0:
        with torch.no_grad():
            print(f"step={step} val_loss={F.cross_entropy(model(xval), yval):.4f}")
with torch.no_grad():
    print(f"end val_loss={F.cross_entropy(model(xval), yval):.4f}")
torch.save(model.state_dict(), "wine.pt")
