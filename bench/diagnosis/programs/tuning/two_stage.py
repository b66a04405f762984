"""Two-stage training: the head alone for a moment, then everything."""
import torch
import torch.nn as nn

WARM_STEPS = 12


class Tagger(nn.Module):
    def __init__(self, d=20, h=48, classes=5):
        super().__init__()
        self.trunk = nn.Sequential(nn.Linear(d, h), nn.LayerNorm(h), nn.GELU(), nn.Linear(h, h), nn.GELU())
        self.head = nn.Linear(h, classes)

    def forward(self, x):
        return self.head(self.trunk(x))


def set_trainable(module, flag):
    for p in module.parameters():
        p.requires_grad_(flag)


def batches(n, size, seed):
    g = torch.Generator().manual_seed(seed)
    a, b = torch.randn(20, 10, generator=g), torch.randn(10, 5, generator=g)
    for _ in range(n):
        x = torch.randn(size, 20, generator=g)
        yield x, (torch.sin(x @ a / 4) @ b).argmax(1)


torch.manual_seed(0)
model = Tagger()
opt = torch.optim.Adam(model.parameters(), lr=4e-3)
ce = nn.CrossEntropyLoss()
recent = []
for step, (x, y) in enumerate(batches(120, 96, seed=8)):
    set_trainable(model.trunk, step < WARM_STEPS)
    loss = ce(model(x), y)
    opt.zero_grad()
    loss.backward()
    opt.step()
    recent = (recent + [loss.item()])[-15:]
    if step % 15 == 14:
        print(f"step {step + 1} loss {sum(recent) / len(recent):.4f}")
torch.save(model.state_dict(), "tagger.pt")
