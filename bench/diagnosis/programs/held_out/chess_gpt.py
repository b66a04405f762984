"""Next-move prediction with a small decoder."""
import torch
import torch.nn as nn
import torch.nn.functional as F

SQUARES, CONTEXT, WIDTH = 36, 12, 32


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.attn = nn.MultiheadAttention(WIDTH, 4, batch_first=True)
        self.ff = nn.Sequential(nn.Linear(WIDTH, 96), nn.GELU(), nn.Linear(96, WIDTH))

    def forward(self, x, mask):
        h = self.norm1(x)
        x = x + self.attn(h, h, h, attn_mask=mask, need_weights=False)[0]
        return x + self.ff(self.norm2(x))


class MoveModel(nn.Module):
    def __init__(self):
        super().__init__()
        self.square = nn.Embedding(SQUARES, WIDTH)
        self.ply = nn.Embedding(CONTEXT, WIDTH)
        self.layers = nn.ModuleList([Layer(), Layer()])
        self.head = nn.Linear(WIDTH, SQUARES)
        self.register_buffer("mask", torch.full((CONTEXT, CONTEXT), float("-inf")).triu(1))

    def forward(self, moves):
        with torch.no_grad():
            x = self.square(moves) + self.ply(torch.arange(CONTEXT))
        for layer in self.layers:
            x = layer(x, self.mask)
        return self.head(x)


def games(n):
    jump = torch.tensor([1, 5, 7, 11])[torch.randint(0, 4, (n, 1))]
    return (torch.randint(0, SQUARES, (n, 1)) + jump * torch.arange(CONTEXT + 1)) % SQUARES


torch.manual_seed(64)
model = MoveModel()
optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
for step in range(80):
    g = games(32)
    logits = model(g[:, :-1])
    loss = F.cross_entropy(logits.reshape(-1, SQUARES), g[:, 1:].reshape(-1))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 16 == 0 or step == 79:
        print(f"step {step} loss {loss.item():.4f}")
torch.save(model.state_dict(), "moves.pt")
