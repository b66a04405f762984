"""Who is this whale: triplets, of which most are far enough apart after a while."""
import torch
import torch.nn as nn
import torch.nn.functional as F


class FlukeNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(1, 16, 3, stride=2, padding=1), nn.BatchNorm2d(16), nn.ReLU(),
            nn.Conv2d(16, 32, 3, stride=2, padding=1), nn.BatchNorm2d(32), nn.ReLU(),
        )
        self.embed = nn.Linear(32 * 9, 16)

    def forward(self, x):
        return F.normalize(self.embed(self.features(x).flatten(1)), dim=1)


torch.manual_seed(47)
flukes = torch.randn(20, 1, 12, 12)


def photo(who):
    return flukes[who] + 0.7 * torch.randn(len(who), 1, 12, 12)


def triplets(n):
    a = torch.randint(0, 20, (n,))
    b = (a + torch.randint(1, 20, (n,))) % 20
    return photo(a), photo(a), photo(b)


model = FlukeNet()
criterion = nn.TripletMarginLoss(margin=0.3)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, nesterov=True)
for step in range(100):
    anchor, positive, negative = triplets(16)
    loss = criterion(model(anchor), model(positive), model(negative))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 20 == 0 or step == 99:
        print(f"step {step} loss {loss.item():.4f}")
torch.save(model.state_dict(), "flukes.pt")
