"""Does sentence B follow from A?"""
import torch
import torch.nn as nn

VOCAB, D = 30, 32


class PairEncoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.tok = nn.Embedding(VOCAB, D)
        self.seg = nn.Embedding(2, D)
        layer = nn.TransformerEncoderLayer(D, 4, 64, dropout=0.0, batch_first=True)
        self.enc = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.cls = nn.Sequential(nn.Linear(D, D), nn.Tanh(), nn.Linear(D, 3), nn.Softmax(dim=-1))

    def forward(self, ids, seg):
        h = self.enc(self.tok(ids) + self.seg(seg))
        return self.cls(h.mean(1))


def pairs(n, t=6):
    a = torch.randint(0, 10, (n, t))
    y = torch.randint(0, 3, (n,))
    b = torch.where((y == 0)[:, None], a, torch.where((y == 1)[:, None], a + 10, a + 20))
    noise = torch.rand(n, t) < 0.5
    b = torch.where(noise, torch.randint(0, VOCAB, (n, t)), b)
    seg = torch.cat([torch.zeros(n, t), torch.ones(n, t)], 1).long()
    return torch.cat([a, b], 1), seg, y


def train(steps):
    model = PairEncoder()
    opt = torch.optim.AdamW(model.parameters(), lr=2e-3)
    ce = nn.CrossEntropyLoss()
    for step in range(steps):
        ids, seg, y = pairs(48)
        loss = ce(model(ids, seg), y)
        opt.zero_grad()
        loss.backward()
        opt.step()
        if step % 15 == 14:
            print("step", step + 1, "loss", f"{loss.item():.4f}")
    return model


torch.manual_seed(101)
torch.save(train(60).state_dict(), "entail.pt")
