"""Four dialects, one GRU: a head for each, and the fourth dialect arrives late."""
import torch
import torch.nn as nn
import torch.nn.functional as F


class Polyglot(nn.Module):
    def __init__(self, dialects=4, symbols=12, dim=32):
        super().__init__()
        self.embed = nn.Embedding(symbols + 1, 12, padding_idx=symbols)
        self.gru = nn.GRU(12, dim, batch_first=True)
        self.heads = nn.ModuleList(nn.Linear(dim, 3) for _ in range(dialects))

    def forward(self, ids, dialect):
        out, _ = self.gru(self.embed(ids))
        return self.heads[dialect](out.mean(1))


class Trainer:
    def __init__(self, seed=71):
        torch.manual_seed(seed)
        self.model = Polyglot()
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=6e-3)
        self.permutations = [torch.randperm(3) for _ in range(4)]

    def batch(self, dialect, n=48):
        y = torch.randint(0, 3, (n,))
        ids = y.unsqueeze(1) * 3 + torch.randint(0, 6, (n, 9))
        return ids, self.permutations[dialect][y]

    def step(self, dialect):
        ids, y = self.batch(dialect)
        loss = F.cross_entropy(self.model(ids, dialect), y)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return loss.item()

    def fit(self, steps):
        for i in range(steps):
            dialect = i % 3 if i < steps // 2 else i % 4
            value = self.step(dialect)
            if i % 24 == 0 or i == steps - 1:
                print(f"step {i} dialect {dialect} loss {value:.4f}")


trainer = Trainer()
trainer.fit(168)
torch.save(trainer.model.state_dict(), "polyglot.pt")
