"""A character model that writes a few lines after every epoch."""
import torch
import torch.nn as nn
import torch.nn.functional as F

VERSE = "the cat sat on the mat and the rat ran from the cat to the hat . "
CHARS = sorted(set(VERSE))


class CharLSTM(nn.Module):
    def __init__(self, vocab, dim=24, hidden=64):
        super().__init__()
        self.embed = nn.Embedding(vocab, dim)
        self.drop_in = nn.Dropout(0.2)
        self.lstm = nn.LSTM(dim, hidden, num_layers=2, dropout=0.3, batch_first=True)
        self.drop_out = nn.Dropout(0.3)
        self.out = nn.Linear(hidden, vocab)

    def forward(self, ids, state=None):
        h, state = self.lstm(self.drop_in(self.embed(ids)), state)
        return self.out(self.drop_out(h)), state

    @torch.no_grad()
    def write(self, start, n):
        self.eval()
        ids, state, text = torch.tensor([[start]]), None, CHARS[start]
        for _ in range(n):
            logits, state = self(ids, state)
            ids = logits[:, -1].argmax(-1, keepdim=True)
            text += CHARS[ids.item()]
        return text


def batches(data, size, length, count):
    for _ in range(count):
        at = torch.randint(0, len(data) - length - 1, (size,))
        window = torch.stack([data[i : i + length + 1] for i in at])
        yield window[:, :-1], window[:, 1:]


def main():
    torch.manual_seed(5)
    data = torch.tensor([CHARS.index(c) for c in VERSE * 30])
    model = CharLSTM(len(CHARS))
    optimizer = torch.optim.Adam(model.parameters(), lr=8e-3)
    for epoch in range(5):
        total = 0.0
        for x, y in batches(data, 16, 24, 18):
            logits, _ = model(x)
            loss = F.cross_entropy(logits.flatten(0, 1), y.flatten())
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 5.0)
            optimizer.step()
            total += loss.item()
        print(f"epoch {epoch} loss {total / 18:.4f} | {model.write(CHARS.index('t'), 30)}")
    torch.save(model.state_dict(), "verse.pt")


main()
