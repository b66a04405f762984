"""Depth of nesting at every position of a bracket sequence."""
import argparse

import torch
import torch.nn as nn
import torch.nn.functional as F

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=110)
parser.add_argument("--dim", type=int, default=32)
parser.add_argument("--heads", type=int, default=4)
parser.add_argument("--dropout", type=float, default=0.4)
parser.add_argument("--lr", type=float, default=4e-3)
args = parser.parse_args()
LENGTH, DEPTHS = 16, 9


class Attention(nn.Module):
    def __init__(self, dim, heads, dropout):
        super().__init__()
        self.heads, self.dropout = heads, dropout
        self.qkv = nn.Linear(dim, 3 * dim)
        self.proj = nn.Linear(dim, dim)

    def forward(self, x):
        b, t, d = x.shape
        q, k, v = self.qkv(x).view(b, t, 3, self.heads, d // self.heads).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True, dropout_p=self.dropout)
        return self.proj(y.transpose(1, 2).reshape(b, t, d))


class Layer(nn.Module):
    def __init__(self, dim, heads, dropout):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.attn = Attention(dim, heads, dropout)
        self.mlp = nn.Sequential(nn.Linear(dim, 2 * dim), nn.GELU(), nn.Linear(2 * dim, dim))

    def forward(self, x):
        x = x + self.attn(self.norm1(x))
        return x + self.mlp(self.norm2(x))


class Nesting(nn.Module):
    def __init__(self, dim, heads, dropout):
        super().__init__()
        self.tok = nn.Embedding(2, dim)
        self.pos = nn.Parameter(0.1 * torch.randn(LENGTH, dim))
        self.layers = nn.Sequential(Layer(dim, heads, dropout), Layer(dim, heads, dropout))
        self.out = nn.Linear(dim, DEPTHS)

    def forward(self, ids):
        return self.out(self.layers(self.tok(ids) + self.pos))


def sequences(n):
    ids = (torch.rand(n, LENGTH) < 0.5).long()
    depth = (2 * ids - 1).cumsum(1).clamp(-4, 4) + 4
    return ids, depth


torch.manual_seed(2)
model = Nesting(args.dim, args.heads, args.dropout)
optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr)
test_ids, test_depth = sequences(256)
for step in range(1, args.steps + 1):
    ids, depth = sequences(64)
    loss = F.cross_entropy(model(ids).flatten(0, 1), depth.flatten())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 22 == 0:
        model.eval()
        with torch.no_grad():
            test = F.cross_entropy(model(test_ids).flatten(0, 1), test_depth.flatten())
        print(f"step {step} train {loss.item():.4f} test loss {test.item():.4f}")
        model.train()
torch.save(model.state_dict(), "nesting.pt")
