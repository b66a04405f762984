"""150 flowers: the whole set is the batch."""
import torch
from torch import nn

torch.manual_seed(150)
centre = torch.tensor([[5.0, 3.4, 1.5, 0.2], [5.9, 2.8, 4.3, 1.3], [6.6, 3.0, 5.6, 2.0]])
spread = torch.tensor([0.35, 0.35, 0.4, 0.2])
y = torch.arange(3).repeat_interleave(50)
x = centre[y] + spread * torch.randn(150, 4)
x = (x - x.mean(0)) / x.std(0)


class Flowers(nn.Module):
    def __init__(self):
        super().__init__()
        self.hidden = nn.Linear(4, 24)
        self.bn = nn.BatchNorm1d(24)
        self.drop = nn.Dropout(0.2)
        self.out = nn.Linear(24, 3)

    def forward(self, x):
        return self.out(self.drop(torch.relu(self.bn(self.hidden(x)))))


model = Flowers()
optimizer = torch.optim.SGD(model.parameters(), lr=0.2)
loss_fn = nn.CrossEntropyLoss()
for epoch in range(100):
    optimizer.zero_grad()
    loss = loss_fn(model(x), y)
    loss.backward()
    optimizer.step()
    if epoch % 20 == 0 or epoch == 99:
        print(f"epoch {epoch} loss {loss.item():.4f}")
model.eval()
with torch.no_grad():
    print(f"accuracy {(model(x).argmax(1) == y).float().mean().item():.3f}")
torch.save(model.state_dict(), "iris.pt")
