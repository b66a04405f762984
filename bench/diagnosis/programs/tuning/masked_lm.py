"""Masked language modelling with a small encoder, continued from a saved state."""
import io

import torch
import torch.nn as nn
import torch.nn.functional as F

VOCAB, LENGTH, DIM, MASK = 32, 12, 32, 31


class MaskedLM(nn.Module):
    def __init__(self):
        super().__init__()
        self.tokens = nn.Embedding(VOCAB, DIM)
        self.positions = nn.Parameter(torch.randn(LENGTH, DIM) * 0.02)
        layer = nn.TransformerEncoderLayer(DIM, 4, 64, dropout=0.0, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.decoder = nn.Linear(DIM, VOCAB)
        self.decoder.weight = self.tokens.weight
        nn.init.normal_(self.tokens.weight, std=0.1)

    def forward(self, ids):
        return self.decoder(self.encoder(self.tokens(ids) + self.positions))


def sentences(n):
    start = torch.randint(0, 30, (n, 1))
    stride = torch.randint(1, 4, (n, 1))
    return (start + stride * torch.arange(LENGTH)) % 30


def mlm_step(model, optimizer):
    ids = sentences(32)
    hidden = torch.rand(ids.shape) < 0.2
    hidden[:, 0] = True
    logits = model(ids.masked_fill(hidden, MASK))
    loss = F.cross_entropy(logits[hidden], ids[hidden])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss.item()


torch.manual_seed(19)
first = MaskedLM()
opt = torch.optim.Adam(first.parameters(), lr=3e-3)
for _ in range(25):
    value = mlm_step(first, opt)
print("stage 1:", round(value, 4))
checkpoint = {name: tensor.detach().clone() for name, tensor in first.state_dict().items()}

model = MaskedLM()
model.load_state_dict(checkpoint, assign=True)
model.requires_grad_(True)
opt = torch.optim.Adam(model.parameters(), lr=3e-3)
for step in range(50):
    value = mlm_step(model, opt)
    if step % 10 == 0:
        print("stage 2 step", step, "loss", round(value, 4))
torch.save(model.state_dict(), "mlm.pt")
