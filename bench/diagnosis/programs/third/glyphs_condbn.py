"""One classifier for several scanners: conditional batch norm has a gain and a shift for each of them."""
import torch
import torch.nn as nn
import torch.nn.functional as F


class ConditionalBatchNorm2d(nn.BatchNorm2d):
    def __init__(self, num_features, num_conditions):
        super().__init__(num_features, affine=False)
        self.gain = nn.Embedding(num_conditions, num_features)
        self.shift = nn.Embedding(num_conditions, num_features)
        nn.init.ones_(self.gain.weight)
        nn.init.zeros_(self.shift.weight)

    def forward(self, x, condition):
        out = F.batch_norm(x, self.running_mean, self.running_var, momentum=self.momentum, eps=self.eps)
        g, b = self.gain(condition), self.shift(condition)
        return out * g[:, :, None, None] + b[:, :, None, None]


class Block(nn.Module):
    def __init__(self, cin, cout, scanners, stride=1):
        super().__init__()
        self.conv = nn.Conv2d(cin, cout, 3, stride=stride, padding=1, bias=False)
        self.cbn = ConditionalBatchNorm2d(cout, scanners)

    def forward(self, x, scanner):
        return F.relu(self.cbn(self.conv(x), scanner))


class GlyphNet(nn.Module):
    def __init__(self, scanners=3, classes=5, width=16):
        super().__init__()
        plan = [(1, width, 1), (width, width, 1), (width, 2 * width, 2), (2 * width, 2 * width, 1),
                (2 * width, 2 * width, 2), (2 * width, 2 * width, 1)]
        self.blocks = nn.ModuleList(Block(i, o, scanners, s) for i, o, s in plan)
        self.fc = nn.Linear(2 * width, classes)

    def forward(self, x, scanner):
        for block in self.blocks:
            x = block(x, scanner)
        return self.fc(x.mean((2, 3)))


TEMPLATES = (torch.rand(5, 1, 12, 12, generator=torch.Generator().manual_seed(99)) > 0.7).float()


def scans(n):
    y = torch.randint(0, 5, (n,))
    scanner = torch.randint(0, 3, (n,))
    contrast = torch.tensor([0.3, 0.6, 1.0])[scanner].view(-1, 1, 1, 1)
    x = contrast * (TEMPLATES[y] + 0.5 * torch.randn(n, 1, 12, 12))
    return x, scanner, y


def main():
    torch.manual_seed(21)
    model = GlyphNet()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, weight_decay=1e-4)
    model.train()
    total = 0.0
    for step in range(1, 121):
        x, scanner, y = scans(32)
        loss = F.cross_entropy(model(x, scanner), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total += loss.item()
        if step % 20 == 0:
            print(f"step {step} loss {total / 20:.4f}")
            total = 0.0
    torch.save(model.state_dict(), "glyphs.pt")


main()
