import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(14)
weave = torch.randn(10, 1, 10, 10)


def swatches(n):
    y = torch.randint(0, 10, (n,))
    return weave[y] + 0.7 * torch.randn(n, 1, 10, 10), y


net = nn.Sequential(
    nn.Conv2d(1, 16, 3), nn.BatchNorm2d(16), nn.ReLU(),
    nn.Conv2d(16, 16, 3), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(2),
    nn.Flatten(), nn.Linear(16 * 9, 10),
)
nn.init.normal_(net[-1].weight, std=1e-3)
nn.init.zeros_(net[-1].bias)
opt = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9, nesterov=True, weight_decay=1e-4)
for step in range(70):
    x, y = swatches(40)
    loss = F.cross_entropy(net(x), y, label_smoothing=0.05)
    opt.zero_grad()
    loss.backward()
    opt.step()
    if step % 14 == 0 or step == 69:
        print(f"step {step} loss {loss.item():.4f}")
torch.save(net.state_dict(), "fabric.pt")
