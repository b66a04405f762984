"""Character model on rhymes; micro batches because memory is short."""
import torch
import torch.nn as nn
import torch.nn.functional as F

TEXT = "the cat sat on the mat and the rat ran to the hat but the bat had a chat with that fat gnat " * 6
CHARS = sorted(set(TEXT))
DATA = torch.tensor([CHARS.index(c) for c in TEXT])
GRAD_ACCUM = 12


class CharGRU(nn.Module):
    def __init__(self, hidden=48):
        super().__init__()
        self.embed = nn.Embedding(len(CHARS), 16)
        self.gru = nn.GRU(16, hidden, batch_first=True)
        self.to_char = nn.Linear(hidden, len(CHARS))

    def forward(self, idx):
        h, _ = self.gru(self.embed(idx))
        return self.to_char(h)


def get_batch(n=4, t=20):
    start = torch.randint(0, len(DATA) - t - 1, (n,))
    seq = torch.stack([DATA[s:s + t + 1] for s in start])
    return seq[:, :-1], seq[:, 1:]


torch.manual_seed(31)
net = CharGRU()
sgd = torch.optim.SGD(net.parameters(), lr=0.5, momentum=0.9)
for update in range(40):
    sgd.zero_grad()
    total = 0.0
    for micro in range(GRAD_ACCUM):
        x, y = get_batch()
        loss = F.cross_entropy(net(x).flatten(0, 1), y.flatten())
        loss.backward()
        total += loss.item()
    sgd.step()
    if update % 8 == 0 or update == 39:
        print(f"update {update} loss {total / GRAD_ACCUM:.4f}")
torch.save(net.state_dict(), "poems.pt")
