"""A network with binary weights: sign() forward, straight through backward, latent weights are clamped to [-1, 1]."""
import torch
import torch.nn as nn
import torch.nn.functional as F


class BinarySign(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return torch.where(x >= 0, 1.0, -1.0)

    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        return grad * (x.abs() <= 1)


class BinaryLinear(nn.Linear):
    def forward(self, x):
        weight = self.weight + (BinarySign.apply(self.weight) - self.weight).detach()
        return F.linear(x, weight) / self.in_features ** 0.5


class BinaryNet(nn.Module):
    def __init__(self, n_in=20, hidden=96, classes=5):
        super().__init__()
        self.fc1 = BinaryLinear(n_in, hidden, bias=False)
        self.bn1 = nn.BatchNorm1d(hidden)
        self.fc2 = BinaryLinear(hidden, hidden, bias=False)
        self.bn2 = nn.BatchNorm1d(hidden)
        self.fc3 = nn.Linear(hidden, classes)

    def forward(self, x):
        x = BinarySign.apply(self.bn1(self.fc1(x)))
        x = BinarySign.apply(self.bn2(self.fc2(x)))
        return self.fc3(x)


def clamp_weights(model):
    for m in model.modules():
        if isinstance(m, BinaryLinear):
            m.weight.data.clamp_(-1, 1)


def main():
    torch.manual_seed(16)
    centres = torch.randn(5, 20)
    model = BinaryNet()
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
    scheduler = torch.optim.lr_scheduler.MultiStepLR(optimizer, milestones=[100, 140], gamma=0.1)
    total = 0.0
    for step in range(1, 161):
        y = torch.randint(0, 5, (64,))
        x = centres[y] + 1.2 * torch.randn(64, 20)
        loss = F.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        scheduler.step()
        clamp_weights(model)
        total += loss.item()
        if step % 20 == 0:
            print(f"step {step} loss {total / 20:.4f}")
            total = 0.0
    torch.save(model.state_dict(), "binary.pt")


if __name__ == "__main__":
    main()
