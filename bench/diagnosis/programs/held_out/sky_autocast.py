"""CNN under bf16 autocast; weights stay in fp32."""
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(81)


class SkyNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 10, 3, padding=1)
        self.bn1 = nn.BatchNorm2d(10)
        self.conv2 = nn.Conv2d(10, 20, 3, stride=2, padding=1)
        self.bn2 = nn.BatchNorm2d(20)
        self.fc = nn.Linear(20, 5)

    def forward(self, x):
        x = F.relu(self.bn1(self.conv1(x)))
        x = F.relu(self.bn2(self.conv2(x)))
        return self.fc(x.mean((2, 3)))


def skies(n):
    y = torch.randint(0, 5, (n,))
    k = torch.arange(10).float()
    f = (0.3 + y.float() * 0.55).view(-1, 1, 1)
    return (torch.sin(f * (k.view(1, -1, 1) + k) + 6 * torch.rand(n, 1, 1)) + 0.3 * torch.randn(n, 10, 10)).unsqueeze(1), y


net = SkyNet()
opt = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
for step in range(60):
    x, y = skies(32)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = F.cross_entropy(net(x), y)
    opt.zero_grad()
    loss.backward()
    opt.step()
    if step % 12 == 0 or step == 59:
        print(f"step {step} loss {loss.item():.4f}")
torch.save(net.state_dict(), "sky.pt")
