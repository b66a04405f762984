"""Route tickets by attention over their words; padding is masked."""
import torch
import torch.nn as nn
import torch.nn.functional as F

WORDS, LEN, DIM = 60, 9, 24


class Router(nn.Module):
    def __init__(self, teams=6):
        super().__init__()
        self.emb = nn.Embedding(WORDS, DIM, padding_idx=0)
        self.q = nn.Linear(DIM, DIM)
        self.k = nn.Linear(DIM, DIM)
        self.v = nn.Linear(DIM, DIM)
        self.out = nn.Linear(DIM, teams)

    def forward(self, ids):
        pad = ids == 0
        e = self.emb(ids)
        scores = self.q(e) @ self.k(e).transpose(1, 2) / DIM**0.5
        scores = scores.masked_fill(pad.unsqueeze(1), float("-inf"))
        h = scores.softmax(-1) @ self.v(e)
        return self.out(h.mean(1))


def tickets(n, step):
    team = torch.randint(0, 6, (n,))
    ids = torch.randint(1, WORDS, (n, LEN))
    ids[:, 0] = 1 + team * 9 + torch.randint(0, 9, (n,))
    length = torch.randint(2, LEN + 1, (n,))
    if step == 41:
        length[7] = 0
    ids[torch.arange(LEN) >= length[:, None]] = 0
    return ids, team


torch.manual_seed(15)
model = Router()
opt = torch.optim.Adam(model.parameters(), lr=8e-3)
for step in range(80):
    ids, team = tickets(64, step)
    loss = F.cross_entropy(model(ids), team)
    opt.zero_grad()
    loss.backward()
    opt.step()
    if step % 10 == 9:
        print(f"step {step + 1} | loss {loss.item():.4f}")
torch.save(model.state_dict(), "router.pt")
