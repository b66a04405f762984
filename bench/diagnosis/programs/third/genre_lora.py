"""LoRA on a small frozen transformer; adapters are merged for evaluation and taken out again."""
import math

import torch
import torch.nn as nn
import torch.nn.functional as F

VOCAB, LENGTH, GENRES = 40, 10, 3


class LoRALinear(nn.Module):
    def __init__(self, base, rank=4, alpha=8):
        super().__init__()
        self.base = base
        for p in base.parameters():
            p.requires_grad_(False)
        self.lora_A = nn.Parameter(torch.empty(rank, base.in_features))
        self.lora_B = nn.Parameter(torch.zeros(base.out_features, rank))
        nn.init.kaiming_uniform_(self.lora_A, a=math.sqrt(5))
        self.scaling = alpha / rank
        self.merged = False

    def train(self, mode=True):
        super().train(mode)
        if mode == self.merged:
            sign = -1 if self.merged else 1
            self.base.weight.data += sign * self.scaling * self.lora_B.data @ self.lora_A.data
            self.merged = not self.merged
        return self

    def forward(self, x):
        out = self.base(x)
        if not self.merged:
            out = out + self.scaling * (x @ self.lora_A.t()) @ self.lora_B.t()
        return out


class Block(nn.Module):
    def __init__(self, dim, heads=4):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.q, self.k, self.v, self.o = (nn.Linear(dim, dim) for _ in range(4))
        self.fc1, self.fc2 = nn.Linear(dim, 2 * dim), nn.Linear(2 * dim, dim)

    def forward(self, x):
        b, t, d = x.shape
        h = self.norm1(x)
        q, k, v = (p(h).view(b, t, self.heads, -1).transpose(1, 2) for p in (self.q, self.k, self.v))
        h = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(b, t, d)
        x = x + self.o(h)
        return x + self.fc2(F.gelu(self.fc1(self.norm2(x))))


class Lyrics(nn.Module):
    def __init__(self, dim=32, outputs=VOCAB):
        super().__init__()
        self.embed = nn.Embedding(VOCAB, dim)
        self.pos = nn.Parameter(0.1 * torch.randn(LENGTH, dim))
        self.blocks = nn.ModuleList(Block(dim) for _ in range(2))
        self.norm = nn.LayerNorm(dim)
        self.head = nn.Linear(dim, outputs)

    def forward(self, tokens):
        x = self.embed(tokens) + self.pos
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x).mean(1))


def songs(n, classes, step):
    y = torch.randint(0, classes, (n,))
    x = torch.randint(0, VOCAB, (n, LENGTH))
    marked = (y.unsqueeze(1) * step + torch.randint(0, 3, (n, LENGTH))) % VOCAB
    return torch.where(torch.rand(n, LENGTH) < 0.35, marked, x), y


torch.manual_seed(25)
model = Lyrics(outputs=8)
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
for step in range(60):
    x, y = songs(48, 8, 5)
    warmup = F.cross_entropy(model(x), y)
    optimizer.zero_grad()
    warmup.backward()
    optimizer.step()

for p in model.parameters():
    p.requires_grad_(False)
for block in model.blocks:
    block.q, block.v = LoRALinear(block.q), LoRALinear(block.v)
model.head = nn.Linear(32, GENRES)
optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=1e-2)
for epoch in range(6):
    model.train()
    for _ in range(15):
        x, y = songs(48, GENRES, 11)
        loss = F.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    model.eval()
    with torch.no_grad():
        x, y = songs(256, GENRES, 11)
        held = F.cross_entropy(model(x), y)
    print(f"epoch {epoch} loss {held.item():.4f}")
torch.save({k: v for k, v in model.state_dict().items() if "lora" in k or "head" in k}, "adapter.pt")
