"""Reverse a sequence with an encoder-decoder; learning rate of 'Attention is all you need'."""
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.optim.lr_scheduler import LambdaLR

V, L, D = 12, 6, 32


class Seq2Seq(nn.Module):
    def __init__(self):
        super().__init__()
        self.src, self.tgt = nn.Embedding(V, D), nn.Embedding(V + 1, D)
        self.pos = nn.Parameter(torch.randn(L, D) * 0.1)
        self.core = nn.Transformer(D, 4, 1, 1, 64, dropout=0.0, batch_first=True)
        self.out = nn.Linear(D, V)

    def forward(self, a, b):
        mask = nn.Transformer.generate_square_subsequent_mask(L)
        return self.out(self.core(self.src(a) + self.pos, self.tgt(b) + self.pos, tgt_mask=mask, tgt_is_causal=True))


def rate(step, warmup=400000):
    step = step + 1
    return min(1.0, step / warmup)


torch.manual_seed(17)
model = Seq2Seq()
optimizer = torch.optim.Adam(model.parameters(), lr=4e-3, betas=(0.9, 0.98), eps=1e-9)
scheduler = LambdaLR(optimizer, rate)
window = []
for step in range(70):
    a = torch.randint(0, V, (48, L))
    y = a.flip(1)
    b = torch.cat([torch.full((48, 1), V), y[:, :-1]], 1)
    loss = F.cross_entropy(model(a, b).reshape(-1, V), y.reshape(-1))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    scheduler.step()
    window.append(loss.item())
    if step % 10 == 9:
        print(f"step {step + 1} loss {sum(window[-10:]) / 10:.4f}")
torch.save(model.state_dict(), "seq2seq.pt")
