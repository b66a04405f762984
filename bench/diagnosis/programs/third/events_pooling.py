"""Will the customer leave? Attention over the events of the last month."""
import torch
import torch.nn as nn
from torch.utils.data import DataLoader, Dataset

KINDS, MAX_EVENTS = 16, 12


class Customers(Dataset):
    def __init__(self, n=640):
        self.items = []
        for _ in range(n):
            count = int(torch.poisson(torch.tensor(5.0)).clamp(max=MAX_EVENTS))
            kinds = torch.randint(1, KINDS, (count,))
            score = (kinds == 3).sum() + (kinds == 7).sum() - (kinds == 5).sum()
            churn = float(score > 0)
            self.items.append((kinds, churn))

    def __len__(self):
        return len(self.items)

    def __getitem__(self, i):
        return self.items[i]


def pad(batch):
    tokens = torch.zeros(len(batch), MAX_EVENTS, dtype=torch.long)
    for row, (kinds, _) in zip(tokens, batch):
        row[:len(kinds)] = kinds
    return tokens, torch.tensor([y for _, y in batch])


class AttentionPooling(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.score = nn.Sequential(nn.Linear(dim, dim), nn.Tanh(), nn.Linear(dim, 1))

    def forward(self, x, mask):
        scores = self.score(x).squeeze(-1).masked_fill(~mask, float("-inf"))
        weights = torch.softmax(scores, dim=-1)
        return (weights.unsqueeze(-1) * x).sum(1)


class ChurnModel(nn.Module):
    def __init__(self, dim=24):
        super().__init__()
        self.embedding = nn.Embedding(KINDS, dim, padding_idx=0)
        self.encoder = nn.Sequential(nn.Linear(dim, dim), nn.GELU(), nn.LayerNorm(dim))
        self.pool = AttentionPooling(dim)
        self.classifier = nn.Sequential(nn.Linear(dim, dim), nn.GELU(), nn.Linear(dim, 1))

    def forward(self, tokens):
        mask = tokens != 0
        x = self.encoder(self.embedding(tokens))
        return self.classifier(self.pool(x, mask)).squeeze(-1)


def main():
    torch.manual_seed(77)
    loader = DataLoader(Customers(), batch_size=32, shuffle=True, collate_fn=pad)
    model = ChurnModel()
    criterion = nn.BCEWithLogitsLoss()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    for epoch in range(6):
        total = 0.0
        for tokens, churn in loader:
            loss = criterion(model(tokens), churn)
            optimizer.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            total += loss.item()
        print(f"epoch {epoch + 1}: loss {total / len(loader):.4f}")
    torch.save(model.state_dict(), "churn.pt")


if __name__ == "__main__":
    main()
