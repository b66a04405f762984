import torch
import torch.nn as nn

torch.manual_seed(58)
W = torch.randn(20, 8)


class Tagger(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc1 = nn.Linear(20, 64)
        self.fc2 = nn.Linear(64, 8)

    def forward(self, x):
        x = torch.relu(self.fc1(x))
        return torch.sigmoid(self.fc2(x))


def photos(n):
    x = torch.randn(n, 20)
    return x, (x @ W > 4.0).float()


tagger = Tagger()
criterion = nn.BCEWithLogitsLoss()
optimizer = torch.optim.Adam(tagger.parameters(), lr=0.01)
for epoch in range(5):
    for _ in range(20):
        x, y = photos(64)
        optimizer.zero_grad()
        loss = criterion(tagger(x), y)
        loss.backward()
        optimizer.step()
    print("epoch %d loss %.4f" % (epoch, loss.item()))
torch.save(tagger.state_dict(), "tags.pt")
