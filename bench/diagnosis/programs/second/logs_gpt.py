"""A tiny GPT on machine logs."""
import torch
import torch.nn as nn
import torch.nn.functional as F

block_size, batch_size, n_embd, vocab_size = 16, 24, 32, 26
max_iters, eval_interval, learning_rate = 120, 30, 3e-3
seed = 1337

torch.manual_seed(seed)
table = torch.randint(0, vocab_size, (vocab_size, 3))
data = [0]
for choice in torch.randint(0, 3, (6000,)).tolist():
    data.append(table[data[-1], choice].item() if choice < 2 else (data[-1] + 1) % vocab_size)
data = torch.tensor(data)
train_data, val_data = data[:5000], data[5000:]


def get_batch(split):
    source = train_data if split == "train" else val_data
    g = torch.Generator().manual_seed(seed)
    ix = torch.randint(len(source) - block_size - 1, (batch_size,), generator=g)
    x = torch.stack([source[i : i + block_size] for i in ix])
    y = torch.stack([source[i + 1 : i + block_size + 1] for i in ix])
    return x, y


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.ln_1, self.ln_2 = nn.LayerNorm(n_embd), nn.LayerNorm(n_embd)
        self.attn = nn.MultiheadAttention(n_embd, 4, batch_first=True)
        self.mlp = nn.Sequential(nn.Linear(n_embd, 4 * n_embd), nn.GELU(), nn.Linear(4 * n_embd, n_embd))
        self.register_buffer("mask", torch.ones(block_size, block_size).triu(1).bool())

    def forward(self, x):
        h = self.ln_1(x)
        x = x + self.attn(h, h, h, attn_mask=self.mask, need_weights=False)[0]
        return x + self.mlp(self.ln_2(x))


class GPT(nn.Module):
    def __init__(self):
        super().__init__()
        self.wte = nn.Embedding(vocab_size, n_embd)
        self.wpe = nn.Embedding(block_size, n_embd)
        self.blocks = nn.Sequential(Block(), Block())
        self.ln_f = nn.LayerNorm(n_embd)
        self.lm_head = nn.Linear(n_embd, vocab_size)

    def forward(self, idx, targets):
        x = self.blocks(self.wte(idx) + self.wpe.weight)
        logits = self.lm_head(self.ln_f(x))
        return logits, F.cross_entropy(logits.flatten(0, 1), targets.flatten())


model = GPT()
optimizer = torch.optim.AdamW(model.parameters(), lr=learning_rate)
for it in range(max_iters):
    if it % eval_interval == 0 or it == max_iters - 1:
        model.eval()
        with torch.no_grad():
            val = model(*get_batch("val"))[1].item()
        model.train()
        print(f"step {it}: val loss {val:.4f}")
    _, loss = model(*get_batch("train"))
    optimizer.zero_grad(set_to_none=True)
    loss.backward()
    optimizer.step()
torch.save(model.state_dict(), "logs.pt")
