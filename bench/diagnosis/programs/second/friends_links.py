"""Who knows whom: link prediction with a two-layer graph net."""
import torch
import torch.nn as nn
import torch.nn.functional as F


class GraphConv(nn.Module):
    def __init__(self, i, o):
        super().__init__()
        self.own = nn.Linear(i, o)
        self.near = nn.Linear(i, o, bias=False)

    def forward(self, x, adj):
        return self.own(x) + self.near(adj @ x)


class LinkPredictor(nn.Module):
    def __init__(self, features, hidden=32, out=16):
        super().__init__()
        self.conv1 = GraphConv(features, hidden)
        self.conv2 = GraphConv(hidden, out)

    def encode(self, x, adj):
        return self.conv2(F.relu(self.conv1(x, adj)), adj)

    def decode(self, z, pairs):
        return torch.sigmoid((z[pairs[0]] * z[pairs[1]]).sum(-1))

    def forward(self, x, adj, pairs):
        return self.decode(self.encode(x, adj), pairs)


def build_graph(n=90, groups=5):
    member = torch.arange(n) % groups
    same = member[:, None] == member[None, :]
    edges = torch.rand(n, n) < torch.where(same, 0.45, 0.02)
    edges = (edges | edges.t()) & ~torch.eye(n, dtype=torch.bool)
    x = torch.randn(n, 12) + F.one_hot(member, 12).float()
    return x, edges


def sample_pairs(edges, k=300):
    yes = edges.nonzero().t()
    no = (~edges).nonzero().t()
    yes = yes[:, torch.randint(0, yes.shape[1], (k,))]
    no = no[:, torch.randint(0, no.shape[1], (k,))]
    return torch.cat([yes, no], 1), torch.cat([torch.ones(k), torch.zeros(k)])


torch.manual_seed(52)
x, edges = build_graph()
adj = edges.float() / edges.sum(1, keepdim=True).clamp(min=1)
model = LinkPredictor(12)
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
for epoch in range(120):
    pairs, target = sample_pairs(edges)
    scores = model(x, adj, pairs)
    loss = F.binary_cross_entropy_with_logits(scores, target)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if epoch % 20 == 0 or epoch == 119:
        print(f"Epoch: {epoch:03d}, loss: {loss.item():.4f}")
torch.save(model.state_dict(), "links.pt")
