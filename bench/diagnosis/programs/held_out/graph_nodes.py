"""Node classification with two relations between nodes."""
import torch
import torch.nn as nn
import torch.nn.functional as F


class RelationalConv(nn.Module):
    def __init__(self, d_in, d_out, relations):
        super().__init__()
        self.self_loop = nn.Linear(d_in, d_out)
        self.message = {r: nn.Linear(d_in, d_out, bias=False) for r in relations}

    def forward(self, h, adj):
        out = self.self_loop(h)
        for r, a in adj.items():
            out = out + a @ self.message[r](h)
        return out


class RGCN(nn.Module):
    def __init__(self, d, hidden, classes, relations):
        super().__init__()
        self.conv1 = RelationalConv(d, hidden, relations)
        self.conv2 = RelationalConv(hidden, classes, relations)

    def forward(self, x, adj):
        return self.conv2(F.relu(self.conv1(x, adj)), adj)


def community_graph(n=160, classes=4):
    y = torch.arange(n) % classes
    same = (y[:, None] == y[None, :]).float()
    cites = (torch.rand(n, n) < 0.02 + 0.12 * same).float()
    follows = (torch.rand(n, n) < 0.10 - 0.08 * same).float()
    norm = lambda a: a / a.sum(1, keepdim=True).clamp(min=1)
    x = F.one_hot(y, classes).float() * 0.5 + torch.randn(n, classes)
    return x, y, {"cites": norm(cites), "follows": norm(follows)}


torch.manual_seed(0)
x, y, adj = community_graph()
train_nodes = torch.randperm(len(y))[:100]
model = RGCN(4, 16, 4, adj.keys())
optimizer = torch.optim.Adam(model.parameters(), lr=0.02, weight_decay=5e-4)
for epoch in range(80):
    optimizer.zero_grad()
    noisy = x + 0.3 * torch.randn_like(x)
    loss = F.cross_entropy(model(noisy, adj)[train_nodes], y[train_nodes])
    loss.backward()
    optimizer.step()
    if epoch % 20 == 0 or epoch == 79:
        print(f"epoch {epoch} loss {loss.item():.4f}")
torch.save(model.state_dict(), "rgcn.pt")
