"""Colour patches to names of colours."""
import torch
import torch.nn as nn


class ColorNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.hidden1 = nn.Linear(27, 48)
        self.hidden2 = nn.Linear(48, 48)
        self.output = nn.Linear(48, 5)
        self.act = nn.Tanh()

    def forward(self, x):
        x = self.act(self.hidden1(x))
        x = self.act(self.hidden2(x))
        return self.output(x)


def patches(n):
    palette = torch.tensor([[200, 60, 50], [60, 180, 70], [50, 80, 190], [190, 180, 60], [140, 120, 130]])
    y = torch.randint(0, 5, (n,))
    rgb = palette[y].repeat(1, 9) + 90 * torch.randn(n, 27)
    return rgb.clamp(0, 255).round(), y


torch.manual_seed(25)
model = ColorNet()
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
loss_fn = nn.CrossEntropyLoss()
for step in range(100):
    x, y = patches(64)
    loss = loss_fn(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 20 == 0 or step == 99:
        print("step %d loss %.4f" % (step, loss.item()))
torch.save(model.state_dict(), "colors.pt")
