"""Which phrase is polite? Sequences are padded with zeros."""
import torch
import torch.nn as nn
import torch.nn.functional as F

PAD, PLEASE = 0, 1


class Polite(nn.Module):
    def __init__(self, vocab=30, dim=12):
        super().__init__()
        self.emb = nn.Embedding(vocab, dim, padding_idx=PLEASE)
        self.fc = nn.Linear(dim, 2)

    def forward(self, ids):
        return self.fc(self.emb(ids).sum(1))


def phrases(n):
    ids = torch.randint(2, 30, (n, 8))
    length = torch.randint(3, 9, (n, 1))
    ids[torch.arange(8).expand(n, 8) >= length] = PAD
    y = torch.randint(0, 2, (n,))
    spot = (torch.rand(n) * length.squeeze(1)).long()
    ids[torch.arange(n)[y == 1], spot[y == 1]] = PLEASE
    return ids, y


torch.manual_seed(29)
net = Polite()
opt = torch.optim.Adam(net.parameters(), lr=0.02)
for step in range(110):
    ids, y = phrases(64)
    loss = F.cross_entropy(net(ids), y)
    opt.zero_grad()
    loss.backward()
    opt.step()
    if step % 22 == 0 or step == 109:
        print("step", step, "loss", round(loss.item(), 4))
torch.save(net.state_dict(), "polite.pt")
