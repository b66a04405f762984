"""A DataLoader whose workers are processes, with a dataset of this file."""

import hashlib
import sys

import torch
from torch import nn


class Numbers(torch.utils.data.Dataset):
    def __len__(self):
        return 8

    def __getitem__(self, index):
        assert sys.argv[1] == "fork" or "hookline" not in sys.modules
        return torch.full((3,), float(index)), torch.tensor([index % 2.0])


if __name__ == "__main__":
    torch.manual_seed(7)
    model = nn.Linear(3, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    loader = torch.utils.data.DataLoader(
        Numbers(), batch_size=4, num_workers=1, multiprocessing_context=sys.argv[1], shuffle=True
    )
    for x, y in loader:
        optimizer.zero_grad()
        nn.functional.mse_loss(model(x), y).backward()
        optimizer.step()
        print(x[:, 0].tolist())
    print(hashlib.sha256(b"".join(p.detach().numpy().tobytes() for p in model.parameters())).hexdigest())
