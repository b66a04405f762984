"""Train a base MLP, then adapt it to a shifted task with low-rank updates only."""
import torch
import torch.nn as nn
import torch.nn.functional as F


class LoRALinear(nn.Module):
    def __init__(self, base: nn.Linear, rank: int = 4, alpha: float = 8.0):
        super().__init__()
        self.base = base
        for p in self.base.parameters():
            p.requires_grad_(False)
        self.lora_A = nn.Parameter(torch.randn(rank, base.in_features) / base.in_features ** 0.5)
        self.lora_B = nn.Parameter(torch.zeros(base.out_features, rank))
        self.scale = alpha / rank

    def forward(self, x):
        return self.base(x) + self.scale * F.linear(F.linear(x, self.lora_A), self.lora_B)


class MLP(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc1 = nn.Linear(12, 64)
        self.fc2 = nn.Linear(64, 64)
        self.fc3 = nn.Linear(64, 4)

    def forward(self, x):
        return self.fc3(F.silu(self.fc2(F.silu(self.fc1(x)))))


def task(n, W):
    x = torch.randn(n, 12)
    return x, torch.tanh(x @ W)


torch.manual_seed(100)
W0 = torch.randn(12, 4) / 3
W1 = W0 + 0.25 * torch.randn(12, 4)
model = MLP()
opt = torch.optim.Adam(model.parameters(), lr=3e-3)
for step in range(60):
    x, y = task(64, W0)
    err = F.mse_loss(model(x), y)
    opt.zero_grad(); err.backward(); opt.step()
print("base error", round(err.item(), 4))

model.fc1 = LoRALinear(model.fc1)
model.fc2 = LoRALinear(model.fc2)
model.fc3 = LoRALinear(model.fc3)
trainable = [p for p in model.parameters() if p.requires_grad]
print("trainable", sum(p.numel() for p in trainable), "of", sum(p.numel() for p in model.parameters()))
opt = torch.optim.AdamW(trainable, lr=5e-3, weight_decay=0.0)
for step in range(80):
    x, y = task(64, W1)
    loss = F.mse_loss(model(x), y)
    opt.zero_grad(); loss.backward(); opt.step()
    if step % 20 == 0 or step == 79:
        print("adapt", step, "loss", round(loss.item(), 4))
torch.save({k: v for k, v in model.state_dict().items() if "lora" in k}, "lora.pt")
