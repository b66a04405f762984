"""Mixed precision with a scaler, also where there is no GPU."""
from dataclasses import dataclass

import torch
import torch.nn as nn
import torch.nn.functional as F


@dataclass
class Settings:
    device: str = "cpu"
    dtype: torch.dtype = torch.bfloat16
    steps: int = 100
    batch: int = 32
    lr: float = 3e-3
    seed: int = 55


class FieldNet(nn.Module):
    def __init__(self, w=16):
        super().__init__()
        self.conv1 = nn.Conv2d(2, w, 3, padding=1)
        self.norm1 = nn.GroupNorm(4, w)
        self.conv2 = nn.Conv2d(w, w, 3, padding=1, groups=4)
        self.norm2 = nn.GroupNorm(4, w)
        self.drop = nn.Dropout2d(0.1)
        self.fc = nn.Linear(w * 16, 6)

    def forward(self, x):
        x = F.max_pool2d(F.gelu(self.norm1(self.conv1(x))), 2)
        x = F.gelu(self.norm2(self.conv2(self.drop(x))))
        return self.fc(x.flatten(1))


def main(s):
    torch.manual_seed(s.seed)
    protos = torch.randn(6, 2, 8, 8)
    model = FieldNet().to(s.device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=s.lr)
    scaler = torch.amp.GradScaler(s.device, init_scale=2.0**14, growth_interval=30)
    for step in range(s.steps):
        y = torch.randint(0, 6, (s.batch,))
        x = protos[y] + torch.randn(s.batch, 2, 8, 8)
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast(s.device, dtype=s.dtype):
            loss = F.cross_entropy(model(x), y)
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
        if step % 20 == 0 or step == s.steps - 1:
            print(f"step {step} scale {scaler.get_scale():.0f} loss {loss.item():.4f}")
    torch.save(model.state_dict(), "fields.pt")


if __name__ == "__main__":
    main(Settings())
