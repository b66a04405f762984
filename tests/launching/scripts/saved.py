"""The whole model is saved, copied and pickled while it trains, and trained on from the file."""

import copy
import hashlib
import io
import pickle

import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 2)

    def forward(self, x):
        return self.layer(x).relu()


torch.manual_seed(10)
net = Net()
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
for _ in range(4):
    optimizer.zero_grad()
    net(torch.ones(3, 4)).sum().backward()
    optimizer.step()
    file = io.BytesIO()
    torch.save(net, file)
    file.seek(0)
    again = torch.load(file, weights_only=False)
    other = copy.deepcopy(net)
    third = pickle.loads(pickle.dumps(net))
    print([sorted(vars(one)) == sorted(vars(Net())) for one in (again, other, third)])
    print([one(torch.ones(1, 4)).tolist() for one in (net, again, other, third)])
net = again
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
for _ in range(2):
    optimizer.zero_grad()
    net(torch.ones(3, 4)).sum().backward()
    optimizer.step()
print(hashlib.sha256(b"".join(p.detach().numpy().tobytes() for p in net.parameters())).hexdigest())
