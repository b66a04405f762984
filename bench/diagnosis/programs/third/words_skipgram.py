"""Skip-gram with negative sampling: sparse gradients, most words of the vocabulary are never seen, two optimizers."""
import torch
import torch.nn as nn
import torch.nn.functional as F

VOCAB, SEEN, DIM = 2000, 120, 24


class SkipGram(nn.Module):
    def __init__(self):
        super().__init__()
        self.centre = nn.Embedding(VOCAB, DIM, sparse=True)
        self.context = nn.Embedding(VOCAB, DIM, sparse=True)
        self.temperature = nn.Parameter(torch.zeros(()))
        nn.init.uniform_(self.centre.weight, -0.5 / DIM, 0.5 / DIM)
        nn.init.zeros_(self.context.weight)

    def forward(self, word, near, far):
        v = self.centre(word)
        good = (v * self.context(near)).sum(-1) * self.temperature.exp()
        bad = (self.context(far) @ v.unsqueeze(-1)).squeeze(-1) * self.temperature.exp()
        return -(F.logsigmoid(good) + F.logsigmoid(-bad).sum(-1)).mean()


def pairs(n):
    """Words of one topic (six of them) stand beside each other."""
    word = torch.randint(0, SEEN, (n,))
    near = word // 20 * 20 + torch.randint(0, 20, (n,))
    return word, near, torch.randint(0, SEEN, (n, 4))


class SkipGramTrainer:
    def __init__(self, lr=0.05):
        self.model = SkipGram()
        tables = [self.model.centre.weight, self.model.context.weight]
        self.sparse = torch.optim.SparseAdam(tables, lr=lr)
        self.dense = torch.optim.SGD([self.model.temperature], lr=1e-3)

    def train(self, iterations):
        running = 0.0
        for i in range(iterations):
            self.sparse.zero_grad()
            self.dense.zero_grad()
            loss = self.model(*pairs(128))
            loss.backward()
            self.sparse.step()
            self.dense.step()
            running = loss.item() if i == 0 else 0.9 * running + 0.1 * loss.item()
            if i % 30 == 0 or i == iterations - 1:
                print(f"iteration {i} loss {running:.4f}")


torch.manual_seed(36)
w2v = SkipGramTrainer()
w2v.train(180)
torch.save(w2v.model.centre.weight.detach()[:SEEN].clone(), "vectors.pt")
