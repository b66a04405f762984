"""Matrix factorisation of ratings."""
import torch
import torch.nn as nn
import torch.nn.functional as F


class Factors(nn.Module):
    def __init__(self, users=60, items=90, dim=6):
        super().__init__()
        self.user = nn.Embedding(users, dim)
        self.item = nn.Embedding(items, dim)
        self.bias = nn.Parameter(torch.zeros(1))
        nn.init.normal_(self.user.weight, std=0.3)
        nn.init.normal_(self.item.weight, std=0.3)

    def forward(self, u, i):
        return (self.user(u) * self.item(i)).sum(1) + self.bias


class Engine:
    def __init__(self, model, lr):
        self.model, self.opt = model, torch.optim.Adam(model.parameters(), lr=lr)

    def backward(self, loss):
        loss.backward()

    def reset(self):
        self.opt.zero_grad()

    def update(self):
        self.reset()
        self.opt.step()


torch.manual_seed(98)
U, I = torch.randn(60, 3), torch.randn(90, 3)
engine = Engine(Factors(), lr=0.05)
for step in range(100):
    u, i = torch.randint(0, 60, (256,)), torch.randint(0, 90, (256,))
    stars = 3 + (U[u] * I[i]).sum(1)
    loss = F.mse_loss(engine.model(u, i), stars)
    engine.backward(loss)
    engine.update()
    if step % 20 == 0 or step == 99:
        print(f"step {step} loss {loss.item():.4f}")
torch.save(engine.model.state_dict(), "factors.pt")
