"""A property of small dense graphs: message passing, then the mean over nodes."""
import torch
import torch.nn as nn


class MessageLayer(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.lin = nn.Linear(dim, dim)
        self.upd = nn.Linear(2 * dim, dim)

    def forward(self, h, adj):
        msg = adj @ self.lin(h)
        return h + torch.relu(self.upd(torch.cat([h, msg], -1)))


class GraphNet(nn.Module):
    def __init__(self, atoms=6, dim=32, depth=6):
        super().__init__()
        self.atom = nn.Embedding(atoms, dim)
        self.layers = nn.ModuleList([MessageLayer(dim) for _ in range(depth)])
        self.readout = nn.Sequential(nn.Linear(dim, dim), nn.ReLU(), nn.Linear(dim, 1))

    def forward(self, atoms, adj):
        h = self.atom(atoms)
        for layer in self.layers:
            h = layer(h, adj)
        return self.readout(h.mean(1)).squeeze(-1)


def graphs(n, nodes=40, p=0.6):
    atoms = torch.randint(0, 6, (n, nodes))
    adj = (torch.rand(n, nodes, nodes) < p).float().triu(1)
    adj = adj + adj.transpose(1, 2)
    value = torch.tensor([0.5, -1.0, 1.5, 0.0, -0.5, 1.0])[atoms]
    return atoms, adj, value.mean(1) * 4


def main():
    torch.manual_seed(27)
    model = GraphNet()
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    for step in range(100):
        atoms, adj, y = graphs(32)
        loss = nn.functional.mse_loss(model(atoms, adj), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 20 == 0 or step == 99:
            print(f"step {step} loss {loss.item():.4f}")
    torch.save(model.state_dict(), "graphnet.pt")


main()
