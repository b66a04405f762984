"""Which of four topics does the question belong to?"""
import torch
import torch.nn as nn
import torch.nn.functional as F


class QueryModel(nn.Module):
    def __init__(self, vocab=40, dim=24, topics=4):
        super().__init__()
        self.words = nn.Embedding(vocab, dim)
        self.position = nn.Parameter(torch.randn(7, dim))
        self.mix = nn.Linear(dim, dim)
        self.topic = nn.Linear(dim, topics)

    def forward(self, ids):
        x = self.words(ids)
        x = self.position.expand(ids.size(0), -1, -1)
        x = F.gelu(self.mix(x))
        return self.topic(x.mean(dim=1))


def questions(n):
    topic = torch.randint(0, 4, (n,))
    ids = torch.randint(0, 40, (n, 7))
    own = torch.rand(n, 7) < 0.5
    return torch.where(own, topic[:, None] * 10 + ids % 10, ids), topic


torch.manual_seed(11)
model = QueryModel()
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
for step in range(80):
    ids, topic = questions(64)
    loss = F.cross_entropy(model(ids), topic)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 16 == 0 or step == 79:
        print(f"step {step}: loss {loss.item():.4f}")
torch.save(model.state_dict(), "query.pt")
