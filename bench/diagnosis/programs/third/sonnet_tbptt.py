"""Character model, truncated backpropagation: the state is carried over and detached after every chunk."""
import torch
import torch.nn as nn

TEXT = """from fairest creatures we desire increase that thereby beautys rose might never die
but as the riper should by time decease his tender heir might bear his memory """ * 20
CHARS = sorted(set(TEXT))


class CharRNN(nn.Module):
    def __init__(self, vocab, dim=24, hidden=48):
        super().__init__()
        self.embed = nn.Embedding(vocab, dim)
        self.rnn = nn.LSTM(dim, hidden, num_layers=2, dropout=0.1)
        self.out = nn.Linear(hidden, vocab)
        for name, p in self.rnn.named_parameters():
            if "bias_ih" in name:
                # open forget gates
                p.data[hidden:2 * hidden].fill_(2.0)

    def forward(self, x, state):
        h, state = self.rnn(self.embed(x), state)
        return self.out(h), state


def batchify(data, bsz):
    n = data.size(0) // bsz
    return data[:n * bsz].view(bsz, -1).t().contiguous()


def repackage_hidden(h):
    if isinstance(h, torch.Tensor):
        return h.detach()
    return tuple(repackage_hidden(v) for v in h)


torch.manual_seed(1111)
data = batchify(torch.tensor([CHARS.index(c) for c in TEXT]), 8)
model = CharRNN(len(CHARS))
criterion = nn.CrossEntropyLoss()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
bptt = 20

for epoch in range(4):
    model.train()
    state, total, count = None, 0.0, 0
    for i in range(0, data.size(0) - 1, bptt):
        length = min(bptt, data.size(0) - 1 - i)
        x, y = data[i:i + length], data[i + 1:i + 1 + length]
        if state is not None:
            state = repackage_hidden(state)
        optimizer.zero_grad()
        output, state = model(x, state)
        loss = criterion(output.view(-1, len(CHARS)), y.reshape(-1))
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 0.25)
        optimizer.step()
        total += loss.item()
        count += 1
    print(f"| epoch {epoch} | loss {total / count:.3f}")
torch.save(model.state_dict(), "sonnet.pt")
