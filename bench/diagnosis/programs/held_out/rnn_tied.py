"""Word model whose output layer shares the embedding; warm-up, then the square root of time."""
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.optim.lr_scheduler import LambdaLR

torch.manual_seed(22)
WORDS, DIM = 40, 32


class LM(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(WORDS, DIM)
        self.gru = nn.GRU(DIM, DIM, batch_first=True)
        self.drop = nn.Dropout(0.1)
        self.decoder = nn.Linear(DIM, WORDS)
        self.decoder.weight = self.embed.weight
        nn.init.normal_(self.embed.weight, std=0.1)

    def forward(self, x):
        return self.decoder(self.drop(self.gru(self.embed(x))[0]))


def recipes(n, t=12):
    step = torch.tensor([1, 3, 7])[torch.randint(0, 3, (n, 1))]
    return (torch.randint(0, WORDS, (n, 1)) + step * torch.arange(t + 1)) % WORDS


lm = LM()
opt = torch.optim.Adam(lm.parameters(), lr=2e-2)
sched = LambdaLR(opt, lambda s: min(s / 15, (15 / max(s, 1)) ** 0.5))
for i in range(80):
    seq = recipes(40)
    loss = F.cross_entropy(lm(seq[:, :-1]).flatten(0, 1), seq[:, 1:].flatten())
    opt.zero_grad()
    loss.backward()
    opt.step()
    sched.step()
    if i % 16 == 0 or i == 79:
        print("iteration", i, "loss", f"{loss.item():.4f}")
torch.save(lm.state_dict(), "lm.pt")
