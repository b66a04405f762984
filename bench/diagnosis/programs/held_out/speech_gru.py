"""Phone recognition, toy sized."""
import torch
import torch.nn as nn
import torch.nn.functional as F

PHONES, FRAMES, FEATS = 6, 14, 10


class PhoneGRU(nn.Module):
    def __init__(self, p=0.4):
        super().__init__()
        self.p = p
        self.rnn = nn.GRU(FEATS, 32, batch_first=True, bidirectional=True)
        self.proj = nn.Linear(64, PHONES)

    def forward(self, x):
        h, _ = self.rnn(x)
        h = F.dropout(h, p=self.p, training=True)
        return self.proj(h)


torch.manual_seed(44)
codebook = torch.randn(PHONES, FEATS)


def speech(n):
    phones = torch.randint(0, PHONES, (n, FRAMES // 2)).repeat_interleave(2, dim=1)
    return codebook[phones] + 1.0 * torch.randn(n, FRAMES, FEATS), phones


def ce(logits, target):
    return F.cross_entropy(logits.transpose(1, 2), target)


net = PhoneGRU()
adam = torch.optim.Adam(net.parameters(), lr=5e-3)
for it in range(60):
    net.train()
    x, y = speech(32)
    adam.zero_grad()
    ce(net(x), y).backward()
    adam.step()
    if it % 15 == 14:
        net.eval()
        with torch.no_grad():
            x, y = speech(100)
            print("iteration %d dev loss %.4f" % (it + 1, ce(net(x), y)))
torch.save(net.state_dict(), "phones.pt")
