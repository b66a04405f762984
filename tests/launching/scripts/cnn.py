"""A CNN with BatchNorm, trained and validated by functions, with a scheduler and clipping."""

import hashlib

import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2))
        self.head = nn.Linear(4 * 3 * 3, 3)

    def forward(self, x):
        return self.head(self.features(x).flatten(1))


def main():
    torch.manual_seed(1)
    net = Net()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9, weight_decay=1e-4)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 2)
    for _ in range(3):
        net.train()
        for _ in range(2):
            optimizer.zero_grad(set_to_none=True)
            nn.functional.cross_entropy(net(torch.randn(4, 1, 8, 8)), torch.randint(0, 3, (4,))).backward()
            nn.utils.clip_grad_norm_(net.parameters(), 1.0)
            optimizer.step()
        scheduler.step()
        net.eval()
        with torch.no_grad():
            print(f"validation {net(torch.randn(4, 1, 8, 8)).sum().item():.6f}")
    return net


if __name__ == "__main__":
    state = main().state_dict()
    print(hashlib.sha256(b"".join(one.numpy().tobytes() for one in state.values())).hexdigest())
