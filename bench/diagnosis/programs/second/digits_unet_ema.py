"""Diffusion on tiny pictures: U-Net, zero-initialised last layer, warm-up from 0, an average of the weights."""
import math

import torch
import torch.nn as nn
import torch.nn.functional as F

TIMES, STEPS = 40, 120


class TinyUNet(nn.Module):
    def __init__(self, w=16):
        super().__init__()
        self.time = nn.Sequential(nn.Embedding(TIMES, 32), nn.Linear(32, 2 * w))
        self.inp = nn.Conv2d(1, w, 3, padding=1)
        self.down = nn.Conv2d(w, 2 * w, 3, stride=2, padding=1)
        self.norm = nn.GroupNorm(4, 2 * w)
        self.mid = nn.Conv2d(2 * w, 2 * w, 3, padding=1)
        self.up = nn.ConvTranspose2d(2 * w, w, 2, stride=2)
        self.out = nn.Conv2d(2 * w, 1, 3, padding=1)
        nn.init.zeros_(self.out.weight)
        nn.init.zeros_(self.out.bias)

    def forward(self, x, t):
        a = F.silu(self.inp(x))
        b = F.silu(self.norm(self.down(a)) + self.time(t)[:, :, None, None])
        b = b + F.silu(self.mid(b))
        return self.out(torch.cat([a, F.silu(self.up(b))], 1))


def pictures(n, side=8):
    row = torch.randint(1, side - 1, (n, 1, 1))
    grid = torch.arange(side)
    horizontal = (grid.view(1, side, 1) == row).float().expand(n, side, side)
    flip = torch.rand(n, 1, 1) < 0.5
    return torch.where(flip, horizontal, horizontal.transpose(1, 2)).unsqueeze(1) * 2 - 1


def factor(step, warm=10):
    if step < warm:
        return step / warm
    return 0.5 * (1 + math.cos(math.pi * (step - warm) / (STEPS - warm)))


torch.manual_seed(17)
alpha_bar = torch.cumprod(1 - torch.linspace(1e-3, 0.15, TIMES), 0)
model = TinyUNet()
ema = torch.optim.swa_utils.AveragedModel(model, multi_avg_fn=torch.optim.swa_utils.get_ema_multi_avg_fn(0.95))
opt = torch.optim.AdamW(model.parameters(), lr=4e-3)
sched = torch.optim.lr_scheduler.LambdaLR(opt, factor)
for step in range(STEPS):
    x0 = pictures(32)
    t = torch.randint(0, TIMES, (32,))
    a = alpha_bar[t].view(-1, 1, 1, 1)
    noise = torch.randn_like(x0)
    loss = F.mse_loss(model(a.sqrt() * x0 + (1 - a).sqrt() * noise, t), noise)
    opt.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    opt.step()
    sched.step()
    ema.update_parameters(model)
    if step % 20 == 0 or step == STEPS - 1:
        print(f"step {step} lr {sched.get_last_lr()[0]:.5f} loss {loss.item():.4f}")
torch.save(ema.module.state_dict(), "unet_ema.pt")
