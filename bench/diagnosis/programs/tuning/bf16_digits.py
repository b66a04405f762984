"""All in bfloat16, to save memory."""
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(23)
DTYPE = torch.bfloat16
PROTO = torch.randn(10, 64)


def digits(n):
    y = torch.randint(0, 10, (n,))
    return (PROTO[y] + 0.8 * torch.randn(n, 64)).to(DTYPE), y


class Mixer(nn.Module):
    def __init__(self):
        super().__init__()
        self.up = nn.Linear(64, 96)
        self.norm = nn.LayerNorm(96)
        self.down = nn.Linear(96, 10)

    def forward(self, x):
        return self.down(F.gelu(self.norm(self.up(x))))


model = Mixer().to(DTYPE)
optimizer = torch.optim.Adam(model.parameters(), lr=2e-4)
for step in range(120):
    x, y = digits(64)
    loss = F.cross_entropy(model(x).float(), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 20 == 0 or step == 119:
        print(f"step {step:3d}   loss {loss.item():.4f}")
torch.save(model.state_dict(), "mixer.pt")
