import torch
import torch.nn as nn

torch.manual_seed(83)


class MeterReader(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(1, 8, 3, padding=1)
        self.fc1 = nn.Linear(8 * 5 * 5, 48)
        self.fc2 = nn.Linear(48, 6)

    def forward(self, x):
        x = torch.max_pool2d(torch.relu(self.conv(x)), 2)
        x = torch.relu(self.fc1(x.flatten(1)))
        return self.fc2(x)


glyph = (torch.rand(6, 1, 10, 10) > 0.5).float()


def photos(n):
    y = torch.randint(0, 6, (n,))
    img = glyph[y] * 160 + 40 + 40 * torch.randn(n, 1, 10, 10)
    return img.clamp(0, 255).to(torch.uint8), y


net = MeterReader()
optimizer = torch.optim.SGD(net.parameters(), lr=0.01, momentum=0.9)
loss_fn = nn.CrossEntropyLoss()
history = []
for step in range(80):
    img, y = photos(32)
    optimizer.zero_grad()
    loss = loss_fn(net(img.float()), y)
    loss.backward()
    optimizer.step()
    history.append(loss.item())
    if step % 16 == 15:
        print("step", step + 1, "loss %.4f" % (sum(history[-16:]) / 16))
torch.save(net.state_dict(), "meter.pt")
