"""Three tasks in turn on one trunk; a large embedding of which a batch touches a few rows."""
import torch
import torch.nn as nn
import torch.nn.functional as F


class MultiTask(nn.Module):
    def __init__(self, vocab=600, dim=16):
        super().__init__()
        self.emb = nn.Embedding(vocab, dim, padding_idx=0, sparse=True)
        self.trunk = nn.Sequential(nn.Linear(dim, 32), nn.ReLU())
        self.heads = nn.ModuleDict({"topic": nn.Linear(32, 4), "mood": nn.Linear(32, 2), "length": nn.Linear(32, 1)})

    def forward(self, ids, task):
        return self.heads[task](self.trunk(self.emb(ids).sum(1)))


def batch(task, n=48):
    topic = torch.randint(0, 4, (n,))
    ids = 1 + topic.unsqueeze(1) * 140 + torch.randint(0, 40, (n, 10))
    lengths = torch.randint(4, 11, (n,))
    ids = ids.masked_fill(torch.arange(10) >= lengths.unsqueeze(1), 0)
    if task == "topic":
        return ids, topic
    if task == "mood":
        return ids, (topic % 2)
    return ids, lengths.float().unsqueeze(1) / 10


def criterion(task, out, y):
    return F.mse_loss(out, y) if task == "length" else F.cross_entropy(out, y)


torch.manual_seed(0)
model = MultiTask()
dense = [p for n, p in model.named_parameters() if not n.startswith("emb")]
optimizers = [torch.optim.SparseAdam(model.emb.parameters(), lr=0.02), torch.optim.Adam(dense, lr=0.01)]
tasks = ["topic", "mood", "length"]
first = {}
for step in range(120):
    task = tasks[step % 3]
    ids, y = batch(task)
    loss = criterion(task, model(ids, task), y)
    for o in optimizers:
        o.zero_grad()
    loss.backward()
    for o in optimizers:
        o.step()
    if task == "topic" and step % 15 == 0:
        print(f"step {step} loss {loss.item():.4f}")
torch.save(model.state_dict(), "tasks.pt")
