"""Sixteen experts, one for each token, with a balancing loss; several are rarely asked."""
import argparse

import torch
import torch.nn as nn
import torch.nn.functional as F


class Experts(nn.Module):
    def __init__(self, dim, hidden, n):
        super().__init__()
        self.router = nn.Linear(dim, n, bias=False)
        self.experts = nn.ModuleList(
            nn.Sequential(nn.Linear(dim, hidden), nn.ReLU(), nn.Linear(hidden, dim)) for _ in range(n)
        )

    def forward(self, x):
        probs = F.softmax(self.router(x), -1)
        weight, chosen = probs.max(-1)
        out = torch.zeros_like(x)
        for k, expert in enumerate(self.experts):
            rows = (chosen == k).nonzero().squeeze(1)
            if len(rows):
                out = out.index_add(0, rows, weight[rows, None] * expert(x[rows]))
        share = F.one_hot(chosen, probs.shape[-1]).float().mean(0)
        return out, probs.shape[-1] * (share * probs.mean(0)).sum()


class Tagger(nn.Module):
    def __init__(self, vocab, dim, experts):
        super().__init__()
        self.emb = nn.Embedding(vocab, dim)
        self.norm = nn.LayerNorm(dim)
        self.moe = Experts(dim, 2 * dim, experts)
        self.out = nn.Linear(dim, 12)

    def forward(self, ids):
        x = self.emb(ids)
        h, balance = self.moe(self.norm(x))
        return self.out(x + h), balance


parser = argparse.ArgumentParser()
parser.add_argument("--experts", type=int, default=16)
parser.add_argument("--steps", type=int, default=120)
parser.add_argument("--balance", type=float, default=0.01)
args = parser.parse_args()

torch.manual_seed(83)
tags = torch.randint(0, 12, (60,))
model = Tagger(60, 16, args.experts)
opt = torch.optim.Adam(model.parameters(), lr=4e-3)
for step in range(args.steps):
    ids = (torch.randn(64).abs() * 18).long().clamp(max=59)
    logits, balance = model(ids)
    loss = F.cross_entropy(logits, tags[ids])
    opt.zero_grad()
    (loss + args.balance * balance).backward()
    opt.step()
    if step % 20 == 0 or step == args.steps - 1:
        print(f"step {step} balance {balance.item():.2f} loss {loss.item():.4f}")
torch.save(model.state_dict(), "tagger.pt")
