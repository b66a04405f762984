"""Masked autoencoder: three quarters of the patches are not seen; positions are sines that nobody trains."""
import torch
import torch.nn as nn
import torch.nn.functional as F

PATCH, GRID = 4, 4
N = GRID * GRID


def sincos(n, dim):
    pos = torch.arange(n).unsqueeze(1)
    omega = 1.0 / 100 ** (torch.arange(dim // 2) / (dim // 2))
    return torch.cat([(pos * omega).sin(), (pos * omega).cos()], 1).unsqueeze(0)


class MAE(nn.Module):
    def __init__(self, dim=48, dec=32, mask_ratio=0.75):
        super().__init__()
        self.keep = int(N * (1 - mask_ratio))
        self.patch_embed = nn.Linear(PATCH * PATCH, dim)
        self.pos_embed = nn.Parameter(sincos(N, dim), requires_grad=False)
        self.blocks = nn.ModuleList(
            nn.TransformerEncoderLayer(dim, 4, 2 * dim, dropout=0.0, batch_first=True, norm_first=True)
            for _ in range(2)
        )
        self.norm = nn.LayerNorm(dim)
        self.decoder_embed = nn.Linear(dim, dec)
        self.mask_token = nn.Parameter(torch.zeros(1, 1, dec))
        self.decoder_pos = nn.Parameter(sincos(N, dec), requires_grad=False)
        self.decoder = nn.TransformerEncoderLayer(dec, 4, 2 * dec, dropout=0.0, batch_first=True, norm_first=True)
        self.pred = nn.Linear(dec, PATCH * PATCH)

    def forward(self, patches):
        b = len(patches)
        order = torch.rand(b, N).argsort(1)
        restore = order.argsort(1)
        x = self.patch_embed(patches) + self.pos_embed
        x = torch.gather(x, 1, order[:, :self.keep, None].expand(-1, -1, x.shape[-1]))
        for block in self.blocks:
            x = block(x)
        x = self.decoder_embed(self.norm(x))
        x = torch.cat([x, self.mask_token.expand(b, N - self.keep, -1)], 1)
        x = torch.gather(x, 1, restore[:, :, None].expand(-1, -1, x.shape[-1])) + self.decoder_pos
        out = self.pred(self.decoder(x))
        hidden = (restore >= self.keep).float()
        return (((out - patches) ** 2).mean(-1) * hidden).sum() / hidden.sum()


def quilts(n):
    """Each quilt repeats one small cloth in two shades."""
    cloth = torch.randn(4, PATCH * PATCH, generator=torch.Generator().manual_seed(0))
    kind, gain = torch.randint(0, 4, (n,)), torch.rand(n, 1, 1) + 0.5
    check = (torch.arange(N) // GRID + torch.arange(N) % GRID) % 2 * 2.0 - 1
    return cloth[kind].unsqueeze(1) * check.view(1, N, 1) * gain + 0.1 * torch.randn(n, N, PATCH * PATCH)


torch.manual_seed(70)
mae = MAE()
decay = [p for p in mae.parameters() if p.requires_grad and p.ndim > 1]
rest = [p for p in mae.parameters() if p.requires_grad and p.ndim <= 1]
optimizer = torch.optim.AdamW([{"params": decay, "weight_decay": 0.05}, {"params": rest, "weight_decay": 0.0}],
                              lr=2e-3, betas=(0.9, 0.95))
warm = torch.optim.lr_scheduler.LinearLR(optimizer, 1e-3, total_iters=15)
cosine = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 165)
scheduler = torch.optim.lr_scheduler.SequentialLR(optimizer, [warm, cosine], [15])
for step in range(180):
    loss = mae(quilts(32))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    scheduler.step()
    if step % 30 == 0 or step == 179:
        print(f"step {step} loss {loss.item():.4f}")
torch.save({k: v for k, v in mae.state_dict().items() if not k.startswith("decoder")}, "mae.pt")
