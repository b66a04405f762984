"""Reverses and shifts digit strings: GRU encoder, GRU decoder with attention, an optimizer for each."""
import torch
import torch.nn as nn
import torch.nn.functional as F

DIGITS, START, LENGTH = 10, 10, 6


class Encoder(nn.Module):
    def __init__(self, dim=48):
        super().__init__()
        self.embedding = nn.Embedding(DIGITS, 16)
        self.gru = nn.GRU(16, dim, batch_first=True)

    def forward(self, src):
        return self.gru(self.embedding(src))


class AttnDecoder(nn.Module):
    def __init__(self, dim=48):
        super().__init__()
        self.embedding = nn.Embedding(DIGITS + 1, 16)
        self.gru = nn.GRU(16, dim, batch_first=True)
        self.query = nn.Linear(dim, dim)
        self.out = nn.Linear(2 * dim, DIGITS)

    def forward(self, memory, state, tgt):
        h, _ = self.gru(self.embedding(tgt), state)
        weights = torch.softmax(self.query(h) @ memory.transpose(1, 2) / memory.shape[-1] ** 0.5, -1)
        return self.out(torch.cat([h, weights @ memory], -1))


def pairs(n):
    src = torch.randint(0, DIGITS, (n, LENGTH))
    tgt = (src.flip(1) + 3) % DIGITS
    start = torch.full((n, 1), START)
    return src, torch.cat([start, tgt[:, :-1]], 1), tgt


def train_step(batch, encoder, decoder, encoder_optimizer, decoder_optimizer):
    src, given, tgt = batch
    encoder_optimizer.zero_grad()
    memory, state = encoder(src)
    logits = decoder(memory, state, given)
    loss = F.cross_entropy(logits.reshape(-1, DIGITS), tgt.reshape(-1))
    loss.backward()
    encoder_optimizer.step()
    decoder_optimizer.step()
    return loss.item()


def main():
    torch.manual_seed(30)
    encoder, decoder = Encoder(), AttnDecoder()
    encoder_optimizer = torch.optim.Adam(encoder.parameters(), lr=6e-3)
    decoder_optimizer = torch.optim.Adam(decoder.parameters(), lr=6e-3)
    recent = []
    for i in range(180):
        recent.append(train_step(pairs(64), encoder, decoder, encoder_optimizer, decoder_optimizer))
        if i % 30 == 29:
            print(f"iter {i + 1} loss {sum(recent[-10:]) / 10:.4f}")
    torch.save({"encoder": encoder.state_dict(), "decoder": decoder.state_dict()}, "seq2seq.pt")


main()
