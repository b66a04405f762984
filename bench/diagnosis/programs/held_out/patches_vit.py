import torch
import torch.nn as nn
import torch.nn.functional as F


class TinyViT(nn.Module):
    def __init__(self, dim=32, classes=6):
        super().__init__()
        self.patch = nn.Conv2d(1, dim, 4, stride=4)
        self.cls = nn.Parameter(torch.zeros(1, 1, dim))
        self.pos = nn.Parameter(torch.randn(1, 10, dim) * 0.02)
        block = nn.TransformerEncoderLayer(dim, 4, 64, dropout=0.0, batch_first=True, norm_first=True)
        self.blocks = nn.TransformerEncoder(block, 2, enable_nested_tensor=False)
        self.head = nn.Linear(dim, classes)

    def forward(self, img):
        x = self.patch(img).flatten(2).transpose(1, 2)
        x = torch.cat([self.cls.expand(len(x), -1, -1), x], 1) + self.pos
        return self.head(self.blocks(x)[:, 0])


def images(n):
    g = torch.Generator().manual_seed(8)
    proto = torch.randn(6, 1, 12, 12, generator=g)
    y = torch.randint(0, 6, (n,))
    return proto[y] + 0.8 * torch.randn(n, 1, 12, 12), y


EPOCHS, ITERS = 6, 12
torch.manual_seed(66)
vit = TinyViT()
opt = torch.optim.AdamW(vit.parameters(), lr=2e-3)
decay = torch.optim.lr_scheduler.LambdaLR(opt, lambda e: max(0.0, 1 - e / EPOCHS))
for epoch in range(EPOCHS):
    acc = 0.0
    for _ in range(ITERS):
        img, y = images(32)
        loss = F.cross_entropy(vit(img), y)
        opt.zero_grad()
        loss.backward()
        opt.step()
        decay.step()
        acc += loss.item() / ITERS
    print(f"epoch {epoch}  loss {acc:.4f}")
torch.save(vit.state_dict(), "vit.pt")
