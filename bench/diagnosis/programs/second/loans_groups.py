"""Loan defaults: embeddings and numbers, decay for weights only, stops when validation no longer improves."""
import copy

import torch
import torch.nn as nn
import torch.nn.functional as F


class LoanNet(nn.Module):
    def __init__(self, cards=(30, 12, 8), numbers=6, width=64):
        super().__init__()
        self.tables = nn.ModuleList([nn.Embedding(c, 4) for c in cards])
        self.bn = nn.BatchNorm1d(numbers)
        self.body = nn.Sequential(
            nn.Linear(4 * len(cards) + numbers, width), nn.ReLU(), nn.Dropout(0.5),
            nn.Linear(width, width), nn.ReLU(), nn.Dropout(0.5), nn.Linear(width, 1),
        )

    def forward(self, codes, x):
        parts = [table(codes[:, i]) for i, table in enumerate(self.tables)]
        return self.body(torch.cat([*parts, self.bn(x)], 1)).squeeze(1)


def groups(model, decay):
    with_decay = [p for n, p in model.named_parameters() if n.startswith("body") and p.ndim == 2]
    names = {id(p) for p in with_decay}
    rest = [p for p in model.parameters() if id(p) not in names]
    return [{"params": with_decay, "weight_decay": decay}, {"params": rest, "weight_decay": 0.0}]


torch.manual_seed(1)
effects = [torch.randn(30), torch.randn(12), torch.randn(8)]


def loans(n):
    codes = torch.stack([torch.randint(0, len(e), (n,)) for e in effects], 1)
    x = torch.randn(n, 6) * torch.tensor([1.0, 20.0, 3.0, 0.5, 7.0, 1.0])
    score = sum(e[codes[:, i]] for i, e in enumerate(effects)) + x[:, 0] + x[:, 1] / 20
    return codes, x, (score > 0).float()


train, val = loans(2000), loans(500)
model = LoanNet()
optimizer = torch.optim.AdamW(groups(model, 0.05), lr=5e-3)
best, best_state, patience = float("inf"), None, 0
for epoch in range(12):
    model.train()
    for pick in torch.randperm(2000).split(128):
        loss = F.binary_cross_entropy_with_logits(model(train[0][pick], train[1][pick]), train[2][pick])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    model.eval()
    with torch.no_grad():
        val_loss = F.binary_cross_entropy_with_logits(model(val[0], val[1]), val[2]).item()
    print(f"epoch {epoch} val loss {val_loss:.4f}")
    if val_loss < best:
        best, best_state, patience = val_loss, copy.deepcopy(model.state_dict()), 0
    else:
        patience += 1
        if patience == 2:
            print("stopped early")
            break
model.load_state_dict(best_state)
torch.save(model.state_dict(), "loans.pt")
