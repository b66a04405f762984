"""Tabular classifier, compiled."""
import torch
import torch.nn as nn


class Tabular(nn.Module):
    def __init__(self):
        super().__init__()
        self.block1 = nn.Sequential(nn.Linear(18, 48), nn.LayerNorm(48), nn.ReLU())
        self.block2 = nn.Sequential(nn.Linear(48, 48), nn.LayerNorm(48), nn.ReLU())
        self.logits = nn.Linear(48, 6)

    def forward(self, x):
        return self.logits(self.block2(self.block1(x)))


torch.manual_seed(12)
centres = torch.randn(6, 18)
labels = torch.randint(0, 6, (1024,))
table = centres[labels] + 1.6 * torch.randn(1024, 18)
held = torch.randint(0, 6, (400,))
held_x = centres[held] + 1.6 * torch.randn(400, 18)
batch_size = 32

model = Tabular()
step_fn = torch.compile(model, backend="aot_eager")
opt = torch.optim.AdamW(model.parameters(), lr=3e-3)
loss_fn = nn.CrossEntropyLoss()
n_batches = len(table) // batch_size
for step in range(80):
    i = step // n_batches
    xb, yb = table[i * batch_size:(i + 1) * batch_size], labels[i * batch_size:(i + 1) * batch_size]
    loss = loss_fn(step_fn(xb), yb)
    opt.zero_grad()
    loss.backward()
    opt.step()
    if step % 20 == 19:
        print(f"step {step + 1} train {loss.item():.4f}")
with torch.no_grad():
    print(f"held-out loss {loss_fn(model(held_x), held).item():.4f}")
torch.save(model.state_dict(), "tabular.pt")
