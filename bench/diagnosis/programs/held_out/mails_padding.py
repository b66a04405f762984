"""Sort mails by attention over their words; padding is masked, every mail has a word."""
import torch
import torch.nn as nn
import torch.nn.functional as F

WORDS, LEN, DIM = 60, 9, 24


class Sorter(nn.Module):
    def __init__(self, folders=5):
        super().__init__()
        self.emb = nn.Embedding(WORDS, DIM, padding_idx=0)
        layer = nn.TransformerEncoderLayer(DIM, 2, 48, dropout=0.1, batch_first=True)
        self.enc = nn.TransformerEncoder(layer, 1, enable_nested_tensor=False)
        self.query = nn.Linear(DIM, 1)
        self.out = nn.Linear(DIM, folders)

    def forward(self, ids):
        pad = ids == 0
        h = self.enc(self.emb(ids), src_key_padding_mask=pad)
        weight = self.query(h).squeeze(-1).masked_fill(pad, float("-inf")).softmax(-1)
        return self.out((weight.unsqueeze(-1) * h).sum(1))


def mails(n):
    folder = torch.randint(0, 5, (n,))
    ids = torch.randint(51, WORDS, (n, LEN))
    ids[:, 0] = 1 + folder * 10 + torch.randint(0, 10, (n,))
    length = torch.randint(1, LEN + 1, (n,))
    ids[torch.arange(LEN) >= length[:, None]] = 0
    return ids, folder


torch.manual_seed(45)
model = Sorter()
opt = torch.optim.Adam(model.parameters(), lr=5e-3)
for step in range(70):
    ids, folder = mails(64)
    loss = F.cross_entropy(model(ids), folder)
    opt.zero_grad()
    loss.backward()
    opt.step()
    if step % 14 == 0 or step == 69:
        print(f"step {step} | loss {loss.item():.4f}")
torch.save(model.state_dict(), "mails.pt")
