"""A decoder that learns to count, kept in bfloat16 from end to end."""
import torch
import torch.nn as nn
import torch.nn.functional as F

V, T, D = 20, 10, 32
dtype = torch.bfloat16


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.ln1, self.ln2 = nn.LayerNorm(D), nn.LayerNorm(D)
        self.qkv, self.proj = nn.Linear(D, 3 * D), nn.Linear(D, D)
        self.fc, self.out = nn.Linear(D, 4 * D), nn.Linear(4 * D, D)

    def forward(self, x):
        q, k, v = self.qkv(self.ln1(x)).chunk(3, -1)
        x = x + self.proj(F.scaled_dot_product_attention(q, k, v, is_causal=True))
        return x + self.out(F.gelu(self.fc(self.ln2(x))))


class Counter(nn.Module):
    def __init__(self):
        super().__init__()
        self.tok = nn.Embedding(V, D)
        self.pos = nn.Embedding(T, D)
        self.blocks = nn.Sequential(Block(), Block())
        self.norm = nn.LayerNorm(D)
        self.head = nn.Linear(D, V)

    def forward(self, ids):
        x = self.tok(ids) + self.pos(torch.arange(T))
        return self.head(self.norm(self.blocks(x)))


torch.manual_seed(26)
model = Counter().to(dtype)
opt = torch.optim.AdamW(model.parameters(), lr=3e-4, weight_decay=0.0)
for step in range(110):
    start, by = torch.randint(0, V, (32, 1)), torch.randint(1, 4, (32, 1))
    seq = (start + by * torch.arange(T + 1)) % V
    logits = model(seq[:, :-1]).float()
    loss = F.cross_entropy(logits.reshape(-1, V), seq[:, 1:].reshape(-1))
    opt.zero_grad()
    loss.backward()
    opt.step()
    if step % 22 == 0 or step == 109:
        print(f"step {step} loss {loss.item():.4f}")
torch.save(model.state_dict(), "counter.pt")
