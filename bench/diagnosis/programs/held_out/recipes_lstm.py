"""Word model whose output layer shares the embedding."""
import copy

import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(20)
WORDS, DIM = 40, 32


class LM(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(WORDS, DIM)
        self.lstm = nn.LSTM(DIM, DIM, batch_first=True)
        self.decoder = nn.Linear(DIM, WORDS, bias=False)
        self.tie_weights()

    def tie_weights(self):
        self.decoder.weight = copy.deepcopy(self.embed.weight)

    def forward(self, x):
        return self.decoder(self.lstm(self.embed(x))[0])


def recipes(n, t=12):
    step = torch.tensor([1, 3, 7])[torch.randint(0, 3, (n, 1))]
    return (torch.randint(0, WORDS, (n, 1)) + step * torch.arange(t + 1)) % WORDS


lm = LM()
opt = torch.optim.Adam(lm.parameters(), lr=8e-3)
for i in range(70):
    seq = recipes(40)
    loss = F.cross_entropy(lm(seq[:, :-1]).flatten(0, 1), seq[:, 1:].flatten())
    opt.zero_grad()
    loss.backward()
    opt.step()
    if i % 14 == 0 or i == 69:
        print("iteration", i, "loss", f"{loss.item():.4f}")
torch.save(lm.state_dict(), "lm.pt")
