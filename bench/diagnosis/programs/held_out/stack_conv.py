"""Many small convolutions in a row."""
import torch
from torch import nn

DEPTH, CH = 9, 10


def weights_init(m):
    if isinstance(m, nn.Conv2d):
        nn.init.normal_(m.weight, mean=0.0, std=0.02)
        nn.init.zeros_(m.bias)


class Stack(nn.Module):
    def __init__(self):
        super().__init__()
        layers = [nn.Conv2d(1, CH, 3, padding=1), nn.ReLU()]
        for _ in range(DEPTH):
            layers += [nn.Conv2d(CH, CH, 3, padding=1), nn.ReLU()]
        self.convs = nn.Sequential(*layers)
        self.fc = nn.Linear(CH * 4, 4)
        self.pool = nn.AdaptiveMaxPool2d(2)

    def forward(self, x):
        return self.fc(self.pool(self.convs(x)).flatten(1))


def corners(n):
    y = torch.randint(0, 4, (n,))
    img = 0.3 * torch.randn(n, 1, 8, 8)
    for i, c in enumerate(y.tolist()):
        r, k = divmod(c, 2)
        img[i, 0, r * 4:r * 4 + 4, k * 4:k * 4 + 4] += 1.0
    return img, y


torch.manual_seed(50)
net = Stack()
net.apply(weights_init)
opt = torch.optim.Adam(net.parameters(), lr=2e-3)
ce = nn.CrossEntropyLoss()
for it in range(60):
    x, y = corners(32)
    opt.zero_grad()
    loss = ce(net(x), y)
    loss.backward()
    opt.step()
    if it % 12 == 0 or it == 59:
        print("it", it, "loss", round(loss.item(), 4))
torch.save(net.state_dict(), "stack.pt")
