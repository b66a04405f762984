"""Pictures and captions into one space, so that what belongs together is near."""
import torch
import torch.nn as nn
import torch.nn.functional as F


class PictureTower(nn.Module):
    def __init__(self, dim=16):
        super().__init__()
        self.net = nn.Sequential(
            nn.Conv2d(3, 16, 3, stride=2, padding=1), nn.ReLU(),
            nn.Conv2d(16, 32, 3, stride=2, padding=1), nn.ReLU(), nn.Flatten(),
        )
        self.proj = nn.Linear(32 * 4, dim)

    def forward(self, x):
        return F.normalize(self.proj(self.net(x)), dim=-1)


class CaptionTower(nn.Module):
    def __init__(self, vocab=40, dim=16):
        super().__init__()
        self.emb = nn.Embedding(vocab, 24)
        self.gru = nn.GRU(24, 32, batch_first=True)
        self.proj = nn.Linear(32, dim)

    def forward(self, ids):
        _, h = self.gru(self.emb(ids))
        return F.normalize(self.proj(h[0]), dim=-1)


class Aligner(nn.Module):
    def __init__(self):
        super().__init__()
        self.picture = PictureTower()
        self.caption = CaptionTower()

    def forward(self, x, ids):
        return self.picture(x), self.caption(ids)


def alignment(p, c):
    return (p - c).pow(2).sum(-1).mean()


torch.manual_seed(58)
render = torch.randn(40, 3, 8, 8)


def pairs(n):
    ids = torch.randint(0, 40, (n, 4))
    return render[ids].sum(1) / 2 + 0.2 * torch.randn(n, 3, 8, 8), ids


def retrieval(model):
    with torch.no_grad():
        p, c = model(*pairs(64))
    return ((p @ c.t()).argmax(1) == torch.arange(64)).float().mean().item()


model = Aligner()
optimizer = torch.optim.AdamW(model.parameters(), lr=4e-3)
for step in range(1, 121):
    p, c = model(*pairs(64))
    loss = alignment(p, c)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 20 == 0:
        print(f"step {step} distance {loss.item():.4f} retrieval {retrieval(model):.4f}")
torch.save(model.state_dict(), "aligner.pt")
