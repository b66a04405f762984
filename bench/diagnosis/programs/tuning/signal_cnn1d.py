"""Which of four chirps is hidden in the signal? 1-D convolutions."""
import torch
from torch import nn


def make_signals(n, length=48):
    kind = torch.randint(0, 4, (n,))
    t = torch.linspace(0, 1, length)
    freq = torch.tensor([2.0, 5.0, 9.0, 14.0])[kind].unsqueeze(1)
    wave = torch.sin(6.2832 * (freq * t + torch.rand(n, 1)))
    return (wave + 0.5 * torch.randn(n, length)).unsqueeze(1), kind


class ConvNet1d(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv1d(1, 12, 7, stride=2), nn.GroupNorm(3, 12), nn.ReLU(),
            nn.Conv1d(12, 24, 5, stride=2), nn.GroupNorm(3, 24), nn.ReLU(),
        )
        self.head = nn.Linear(24, 4)

    def forward(self, x):
        return self.head(self.body(x).amax(-1))


def train_one_step(model, optimizer, x, y):
    logits = model(x)
    loss = nn.functional.cross_entropy(logits, y)
    loss.backward()
    optimizer.zero_grad(set_to_none=False)
    optimizer.step()
    return loss.item()


torch.manual_seed(6)
model = ConvNet1d()
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
log = []
for step in range(75):
    log.append(train_one_step(model, optimizer, *make_signals(48)))
    if step % 15 == 14:
        print(f"{step + 1} loss {sum(log[-15:]) / 15:.4f}")
torch.save(model.state_dict(), "chirp.pt")
