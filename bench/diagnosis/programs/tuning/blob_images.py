"""Where is the blob? Classify which ninth of the picture holds it."""
import torch
import torch.nn as nn
import torch.optim as optim

torch.manual_seed(42)
SIDE = 12


def pictures(n):
    y = torch.randint(0, 9, (n,))
    cx, cy = (y % 3) * 4 + 1.5 + torch.rand(n), (y // 3) * 4 + 1.5 + torch.rand(n)
    grid = torch.arange(SIDE).float()
    bump = torch.exp(-((grid[None, :, None] - cy[:, None, None]) ** 2 + (grid[None, None] - cx[:, None, None]) ** 2) / 3)
    return (bump + 0.2 * torch.randn(n, SIDE, SIDE)).unsqueeze(1), y


class Classifier(nn.Module):
    def __init__(self):
        super(Classifier, self).__init__()
        self.conv1 = nn.Conv2d(1, 8, kernel_size=3, padding=1)
        self.conv2 = nn.Conv2d(8, 16, kernel_size=3, padding=1)
        self.pool = nn.MaxPool2d(2)
        self.fc1 = nn.Linear(16 * 3 * 3, 32)
        self.fc2 = nn.Linear(32, 9)
        self.softmax = nn.Softmax(dim=1)

    def forward(self, x):
        x = self.pool(torch.relu(self.conv1(x)))
        x = self.pool(torch.relu(self.conv2(x)))
        x = torch.relu(self.fc1(x.view(x.size(0), -1)))
        return self.softmax(self.fc2(x))


net = Classifier()
criterion = nn.CrossEntropyLoss()
optimizer = optim.Adam(net.parameters(), lr=0.003)
running_loss = 0.0
for i in range(100):
    inputs, labels = pictures(48)
    optimizer.zero_grad()
    outputs = net(inputs)
    loss = criterion(outputs, labels)
    loss.backward()
    optimizer.step()
    running_loss += loss.item()
    if i % 20 == 19:
        print("[%d] loss: %.4f" % (i + 1, running_loss / 20))
        running_loss = 0.0
torch.save(net.state_dict(), "blobs.pt")
