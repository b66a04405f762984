"""Semi-supervised node classification with a graph convolutional network, everything by hand."""
import argparse

import torch
import torch.nn as nn
import torch.nn.functional as F

parser = argparse.ArgumentParser()
parser.add_argument("--epochs", type=int, default=80)
parser.add_argument("--hidden", type=int, default=32)
parser.add_argument("--dropout", type=float, default=0.6)
parser.add_argument("--lr", type=float, default=0.02)
parser.add_argument("--weight_decay", type=float, default=5e-4)
parser.add_argument("--seed", type=int, default=72)
args = parser.parse_args()


class GraphConvolution(nn.Module):
    def __init__(self, in_features, out_features):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(in_features, out_features))
        self.bias = nn.Parameter(torch.zeros(out_features))
        nn.init.xavier_uniform_(self.weight)

    def forward(self, x, adj):
        return torch.spmm(adj, x @ self.weight) + self.bias


class GCN(nn.Module):
    def __init__(self, nfeat, nhid, nclass, dropout):
        super().__init__()
        self.gc1 = GraphConvolution(nfeat, nhid)
        self.gc2 = GraphConvolution(nhid, nclass)
        self.dropout = dropout

    def forward(self, x, adj):
        x = F.relu(self.gc1(x, adj))
        x = F.dropout(x, self.dropout)
        x = self.gc2(x, adj)
        return F.log_softmax(x, dim=1)


def load_data(n=240, classes=4, words=60):
    """A citation network: papers cite their own field more often and share its words."""
    labels = torch.arange(n) % classes
    same = labels.unsqueeze(0) == labels.unsqueeze(1)
    edges = torch.rand(n, n) < torch.where(same, 0.04, 0.008)
    adj = (edges | edges.t()).float() + torch.eye(n)
    inv = adj.sum(1).pow(-0.5)
    adj = inv.view(-1, 1) * adj * inv.view(1, -1)
    topic = torch.rand(classes, words) < 0.2
    features = (torch.rand(n, words) < torch.where(topic[labels], 0.25, 0.1)).float()
    features = features / features.sum(1, keepdim=True).clamp(min=1)
    order = torch.randperm(n)
    return adj.to_sparse(), features, labels, order[:60], order[60:140]


torch.manual_seed(args.seed)
adj, features, labels, idx_train, idx_val = load_data()
model = GCN(features.shape[1], args.hidden, int(labels.max()) + 1, args.dropout)
optimizer = torch.optim.Adam(model.parameters(), lr=args.lr, weight_decay=args.weight_decay)


def train(epoch):
    model.train()
    optimizer.zero_grad()
    output = model(features, adj)
    loss_train = F.nll_loss(output[idx_train], labels[idx_train])
    loss_train.backward()
    optimizer.step()

    model.eval()
    with torch.no_grad():
        output = model(features, adj)
    loss_val = F.nll_loss(output[idx_val], labels[idx_val])
    acc_val = (output[idx_val].argmax(1) == labels[idx_val]).float().mean()
    if epoch % 10 == 9 or epoch == 0:
        print(f"Epoch: {epoch + 1:04d} loss_train: {loss_train.item():.4f} "
              f"loss_val: {loss_val.item():.4f} acc_val: {acc_val.item():.4f}")


for epoch in range(args.epochs):
    train(epoch)
torch.save(model.state_dict(), "gcn.pt")
